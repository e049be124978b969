"""The published rules, by hand and against slow references."""

import math

import numpy as np
import pytest

from kaestat.estimator.prediction import Population, Prediction
from kaestat.sampling import POLICIES, PromptSampler, make_policy
from kaestat.sampling.policies import Ask
from kaestat.sampling.policies.dapo import live_groups

POPULATION = Population(n_prompts=9, mean=0.5, spread=0.08, noise=0.17, drift=0.0, binary=True)


def ask(values, budget=8.0, most=math.inf, state=None, group_size=1, seed=0) -> Ask:
    values = np.array(values, dtype=float)
    size, ones = len(values), np.ones(len(values))
    prediction = Prediction(list(range(size)), values, 0.1 * ones, 20 * ones, 0.2 * ones, ones, True, POPULATION)
    return Ask(prediction, state or {}, ones / size, ones, budget, most, group_size, np.random.default_rng(seed))


def visited(policy, state, prompt, count, total):
    one = np.array
    return policy.observed(state, one([prompt]), one([float(count)]), one([float(total)]), one([float(total)]))


def test_spo_and_uniform_by_hand():
    np.testing.assert_allclose(make_policy("spo").score(ask([0.5, 1.0, 0.2])), np.array([0.55, 0.05, 0.45]) / 3)
    np.testing.assert_allclose(make_policy("uniform").score(ask([0.5, 1.0])), [0.5, 0.5])


def test_near_half_takes_as_many_as_the_budget_is_enough_for():
    score = make_policy("near_half").score(ask([0.1, 0.45, 0.9, 0.6], budget=4, most=2))
    assert score.tolist() == [0, 1, 0, 1]
    score = make_policy("near_half:target=1").score(ask([0.1, 0.45, 0.9, 0.6], budget=1, most=1))
    assert score.tolist() == [0, 0, 1, 0]


def test_mopps_posteriors_decay_towards_the_prior_and_count_a_lone_completion():
    policy = make_policy("mopps:decay=0.5")
    state = policy.initial_state(2)
    state = visited(policy, state, 1, 8, 6)
    assert state["successes"].tolist() == [1, 7] and state["failures"].tolist() == [1, 3]
    state = visited(policy, state, 1, 1, 1)  # where the published code sets both to 8
    assert state["successes"].tolist() == [1, 0.5 * 7 + 0.5 + 1] and state["failures"].tolist() == [1, 2]


def test_mopps_draws_from_its_posteriors():
    policy = make_policy("mopps")
    state = {"successes": np.array([50.0, 98.0, 2.0]), "failures": np.array([50.0, 2.0, 98.0])}
    chosen = [policy.score(ask([0.5] * 3, budget=1, most=1, state=state, seed=s)).argmax() for s in range(50)]
    assert set(chosen) == {0}


def test_greso_counts_groups_in_a_row_and_adapts():
    policy = make_policy("greso")
    state = policy.initial_state(3)
    for _ in range(3):
        state = visited(policy, state, 0, 8, 8)
    assert state["right"].tolist() == [3, 0, 0]
    assert float(state["easy"]) == pytest.approx(0.47) and float(state["hard"]) == pytest.approx(0.53)
    state = visited(policy, state, 0, 8, 7)
    assert state["right"].tolist() == [0, 0, 0] and float(state["easy"]) == pytest.approx(0.48)
    state = visited(policy, state, 1, 8, 0)
    assert state["wrong"].tolist() == [0, 1, 0] and float(state["hard"]) == pytest.approx(0.53)


def test_greso_skips_with_the_published_probability():
    """Of 4,000 draws, within five binomial standard errors."""
    policy = make_policy("greso")
    state = {"right": np.array([0, 2, 20]), "wrong": np.zeros(3), "easy": np.array(0.5), "hard": np.array(0.5)}
    kept = np.mean([policy.score(ask([0.5] * 3, state=state, seed=s)) > 0 for s in range(4_000)], axis=0)
    expected = np.array([1.0, 0.25, 0.01])
    np.testing.assert_array_less(np.abs(kept - expected), 5 * np.sqrt(expected * (1 - expected) / 4_000) + 1e-12)


def test_pools_go_by_the_newest_group_alone():
    policy = make_policy("pools")
    state = policy.initial_state(4)
    for prompt, total in ((0, 2), (1, 4), (2, 8), (2, 3), (1, 7)):
        state = visited(policy, state, prompt, 8, total)
    np.testing.assert_allclose(policy.score(ask([0.5] * 4, state=state)) * 4, [0.2, 0.2, 1.0, 1.0])


def value(n, p):
    return 0.0 if n == 0 else (1 - p**n - (1 - p) ** n) * p * (1 - p) ** 2


def by_dynamic_programming(values, budget):
    """Largest total value of whole numbers of completions, the whole budget or less."""
    best = np.zeros(budget + 1)
    for p in values:
        best = np.array([max(best[b - n] + value(n, p) for n in range(b + 1)) for b in range(budget + 1)])
    return best[budget]


@pytest.mark.parametrize("seed", range(6))
def test_knapsack_is_within_one_prompt_of_dynamic_programming(seed):
    rng = np.random.default_rng(seed)
    values = rng.beta(0.6, 0.6, 12)
    found = make_policy("knapsack").score(ask(values, budget=40.0))
    assert found.sum() == pytest.approx(40)
    best = by_dynamic_programming(values, 40)
    relaxed = sum(
        np.interp(n, range(130), [value(k, p) for k in range(130)]) for n, p in zip(found, values, strict=True)
    )
    assert best * 0.97 <= relaxed + 0.02
    whole = sum(value(int(n), p) for n, p in zip(found, values, strict=True))
    assert whole <= best + 1e-12


def test_knapsack_gives_nothing_to_what_is_certain():
    found = make_policy("knapsack").score(ask([0.0, 1.0, 0.5, 0.1], budget=10))
    assert found[0] == found[1] == 0 and found[3] > 0


def test_dapo_keeps_groups_with_both_right_and_wrong():
    assert live_groups(np.array([[1, 1, 1], [0, 1, 0], [0, 0, 0]])).tolist() == [False, True, False]


@pytest.mark.parametrize("policy", ["greso", "knapsack", "mopps", "spo", "neyman"])
def test_policies_for_success_rates_warn_of_other_rewards(policy, recwarn):
    sampler = PromptSampler(["a", "b"], budget=2, policy=policy)
    sampler.observe(["a", "b"], [1.0, 0.5], 0)
    assert not any("success rates" in str(each.message) for each in recwarn)
    sampler.observe(["a", "b"], [1.0, 1.5], 1)
    assert any("draws by success rates" in str(each.message) for each in recwarn) == (policy != "neyman")


@pytest.mark.parametrize("policy", POLICIES)
def test_states_are_not_changed_in_place(policy):
    policy = make_policy(policy)
    state = policy.initial_state(3)
    before = {name: array.copy() for name, array in state.items()}
    visited(policy, state, 1, 4, 4)
    for name, array in state.items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize(
    ("specification", "message"),
    [
        ("mopps:decay=0", "decay"),
        ("greso:easy=2", "easy"),
        ("pools:hard=0,normal=0,easy=0", "positive weight"),
        ("pools:hard_up_to=0.9", "less than normal_up_to"),
        ("knapsack:largest=1", "largest"),
        ("spo:epsilon=-1", "epsilon"),
        ("thompson", "unknown 'thompson'"),
    ],
)
def test_parameters_out_of_range_are_refused(specification, message):
    with pytest.raises(ValueError, match=message):
        make_policy(specification)
