"""The filter against the same model on a grid of logits, where exact Bayes is possible; its parts, and its corners."""

import numpy as np
import pytest

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines import bayes_filter as module
from kaestat.baselines.beta_mixture import shifted
from simulations.bandits import regimes
from simulations.bandits.paths import START_MEAN, START_WITHIN
from simulations.harness import Streams
from simulations.studies.best_baselines import served
from tests.helpers import grid_filter

CASES = []  # its reference takes whole runs, and stands below


@pytest.fixture(autouse=True)
def many(monkeypatch):
    """Regimes of 256 prompts, so that little of an error comes from what all prompts have to teach."""
    monkeypatch.setattr(regimes, "N_PROMPTS", 256)


def error(values, truth):
    """Mean square from the second visit on."""
    return ((values - truth[..., None])[:, 1:] ** 2).mean()


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize(
    ("regime", "most"),
    [
        ("walk .15", 1.03),
        ("own drift, sd .15", 1.03),
        ("3 visits", 1.05),
        ("gaps of 2 and 25", 1.03),
        ("jumps, .05 a visit", 1.12),
    ],
)
def test_its_error_is_that_of_exact_bayes_on_the_same_model(regime, most, size):
    streams = Streams(0, regime, [0])
    value = regimes.REGIMES[regime](streams)[0]
    reward = regimes.rewards_of(value, size, streams)
    within = START_WITHIN / (START_MEAN * (1 - START_MEAN))
    prior = grid_filter.beta_prior(*(np.array([START_MEAN, 1 - START_MEAN]) * within / (1 - within)))
    exact = error(grid_filter.values(reward[0], prior)[None], value)
    assert 0.95 < error(served(make_baseline("bayes_filter"), reward), value) / exact < most


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("regime", ["Beta rewards", "all +2.5 logits"])
def test_it_keeps_up_with_the_filter_that_knows_the_noise_of_rewards_or_the_shock(regime, size):
    world = regimes.world(regime, size, Streams(1, regime, [0]))
    values = served(make_baseline("bayes_filter"), world.reward)
    assert error(values, world.value) < 1.15 * error(world.known, world.value)


def stepped(reward):
    """What is served at each step of a run of all prompts; rewards (T, ..., P, G)."""
    baseline, carry, state = make_baseline("bayes_filter"), None, None
    for t, now in enumerate(reward):
        seen = np.ones((*now.shape[:-1], min(t, 1)))
        groups, visits = Groups(now), Visits(seen, seen, seen, seen, state=state)
        answer = baseline.serve(groups, visits, step=t, carry=carry)
        yield groups, visits, carry, answer
        carry, state = answer.carry, answer.state


def soft_or_not(rng, value, size, soft):
    """Rewards (..., G), of which a share ``soft`` are not 0 or 1."""
    value = np.broadcast_to(value[..., None], (*value.shape, size))
    hard = (rng.random(value.shape) < value).astype(float)
    return np.where(rng.random(value.shape) < soft, rng.beta(5 * value + 0.01, 5.01 - 5 * value), hard)


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("soft", [0.0, 0.1, 1.0])
def test_no_reward_moves_its_own_value_by_way_of_other_prompts_either(soft, size):
    rng = np.random.default_rng(size)
    logit = rng.standard_normal(80) - 1 + 2.5 * (np.arange(5) >= 3)[:, None]  # a shock at the fourth step
    baseline, others = make_baseline("bayes_filter"), 0.0
    for groups, visits, carry, answer in stepped(soft_or_not(rng, 1 / (1 + np.exp(-logit)), size, soft)):
        for k, own in np.ndindex(8, 3):
            reward = groups.reward.copy()
            reward[10 * k, 0] = own / 2 if soft else own % 2
            moved = baseline.values(Groups(reward), visits, step=0, carry=carry) - answer.values
            assert abs(moved[10 * k, 0]) < 2e-15
            others = max(others, abs(moved[10 * k + 1]).max())
    assert others > 1e-6  # prompts do tell each other something


def test_first_group_by_hand():
    # No past and no other prompt: Beta(1/2, 1/2), and the other completion.
    [(_, _, _, answer)] = stepped(np.array([[[1.0, 0.0]]]))
    np.testing.assert_allclose(answer.values, [[0.5 / 2, 1.5 / 2]])


def test_two_visits_without_a_state_are_as_a_first_visit_and_its_state():
    reward = np.array([[[1.0, 1.0]], [[1.0, 0.0]]])
    baseline = make_baseline("bayes_filter")
    state = baseline.serve(Groups(reward[0]), Visits.empty(Groups(reward[0])), step=0).state
    one, two = np.ones((1, 1)), np.full((1, 1), 2.0)
    expected = baseline.values(Groups(reward[1]), Visits(one, two, two, two, state=state), step=1)
    np.testing.assert_allclose(baseline.values(Groups(reward[1]), Visits(one, two, two, two), step=1), expected)
    padded = Visits(*(np.array([[0.0, each, 0.0]]) for each in (1, 2, 2, 2)))
    np.testing.assert_allclose(baseline.values(Groups(reward[1]), padded, step=1), expected)


def test_the_order_of_prompts_does_not_matter_and_replicates_do_not_mix():
    rng = np.random.default_rng(2)
    reward = soft_or_not(rng, rng.random((2, 70)), 2, 0.1) * np.ones((4, 1, 1, 1))
    reward[2:] = 1.0  # a shock
    both = [answer.values for *_, answer in stepped(reward)]
    alone = [answer.values for *_, answer in stepped(reward[:, 1, ::-1])]
    np.testing.assert_allclose([each[1, ::-1] for each in both], alone, atol=1e-12)


def test_prompts_of_few_steps_bring_up_no_shock(monkeypatch):
    rng = np.random.default_rng(15)
    reward = soft_or_not(rng, np.broadcast_to(rng.random((32, 1, 40)), (32, 16, 40)), 1, 0.0)
    few = served(make_baseline("bayes_filter"), reward)
    monkeypatch.setattr(module, "SHOCK", 0.0)
    np.testing.assert_array_equal(served(make_baseline("bayes_filter"), reward), few)


def test_values_stay_numbers_where_rewards_are_certain():
    """Jumps make every other hypothesis impossible; prompts that are never solved come back for ever."""
    rng = np.random.default_rng(25)
    value = np.repeat(rng.random((6, 64)), 5, axis=0)
    certain = rng.beta(
        *(200 * each + 1e-3 for each in np.broadcast_arrays(value[..., None], 1 - value[..., None])), (30, 64, 8)
    )
    *_, (_, _, _, answer) = stepped(certain)
    assert abs(answer.values - value[-1, :, None]).max() < 0.1
    *_, (_, _, _, answer) = stepped(np.tile([[0.0] * 4, [1.0] * 4, [0.0, 1.0] * 2], (520, 1, 1)))
    np.testing.assert_allclose(answer.values[:2, 0], [0.0, 1.0], atol=5e-3)


@pytest.mark.parametrize("size", [1, 2, 8])
def test_values_that_are_all_alike_are_found(size):
    """A prior that counts as hundreds of completions must not be dragged along by hypotheses of drifts."""
    reward = (np.random.default_rng(size).random((24, 256, size)) < 0.6).astype(float)
    values = [answer.values for *_, answer in stepped(reward)]
    assert ((np.array(values)[2:] - 0.6) ** 2).mean() < 0.003


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.6), (0.3, 10.6), (2.3, 8.6), (20.0, 100.0)])
@pytest.mark.parametrize("by", [-2.5, -0.5, 0.5, 2.5])
def test_a_belief_moves_as_far_as_its_values(a, b, by):
    """Where values may be near 0 or 1, the mean moves less: by 2.5 logits from .33 to .60, not to .86."""
    logit = np.linspace(-120, 120, 100_001)
    weight = np.exp(a * logit - (a + b) * np.logaddexp(0, logit))
    exact = (weight / (1 + np.exp(-logit - by))).sum() / weight.sum()
    after = shifted(*np.array([[a], [b]]), np.array([by]))
    assert after[0] / sum(after) == pytest.approx(exact, abs=0.01)
