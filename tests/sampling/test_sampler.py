"""The sampler that a training loop holds."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, Prior
from kaestat.core.storage import dump_state
from kaestat.sampling import POLICIES, Policy, PromptSampler

IDS = [f"p{k}" for k in range(12)]
VALUES = np.linspace(0.0, 1.0, 12)
PAIRED = [(name, 4 if k % 2 and kind.takes_groups else None) for k, (name, kind) in enumerate(POLICIES.items())]


def train(sampler: PromptSampler, steps: int, start: int = 0, coded=lambda success: success) -> list:
    """Draws of a run whose prompts keep their values, and whose successes are coded as rewards."""
    draws = []
    for step in range(start, start + steps):
        draws.append(sampler.draw(step))
        ids = draws[-1].rows()
        success = np.random.default_rng([0, step]).random(len(ids)) < VALUES[[IDS.index(key) for key in ids]]
        sampler.observe(ids, coded(success.astype(float)), step)
    return draws


def same(draws, others, rtol=0.0):
    for draw, other in zip(draws, others, strict=True):
        assert draw.rows() == other.rows()
        np.testing.assert_allclose(draw.correction, other.correction, rtol=rtol)
        np.testing.assert_allclose(draw.expected, other.expected, rtol=rtol)


@pytest.mark.parametrize(("policy", "group_size"), PAIRED)
def test_budgets_are_exact_and_the_corrected_mean_is_unbiased_under_every_policy(policy, group_size):
    """Sum over prompts of count times correction times f(prompt) has the expectation B times the objective's mean of f.

    1,000 draws of one state; within five standard errors. Without the correction the same sum must miss.
    """
    most = 4 if policy in ("mopps", "near_half") and group_size is None else None  # or they select all
    share = np.linspace(1, 2, 12) / 18
    sampler = PromptSampler(IDS, 16, policy=policy, group_size=group_size, most=most, floor=0.25, share=share, seed=3)
    for draw in train(sampler, 30):
        assert draw.counts.sum() == 16 == len(draw.rows()) and (draw.correction <= 4 + 1e-9).all()
        np.testing.assert_allclose(
            draw.correction, 16 * share[[IDS.index(key) for key in draw.prompt_ids]] / draw.expected
        )
        assert group_size is None or set(draw.counts.tolist()) == {4}
    f = dict(zip(IDS, (VALUES - 0.3) ** 2, strict=True))
    corrected, plain = np.empty(1_000), np.empty(1_000)
    for k in range(1_000):
        draw = sampler.draw(30)
        of = np.array([f[key] for key in draw.prompt_ids])
        corrected[k] = np.sum(draw.counts * draw.correction * of) / 16
        plain[k] = np.sum(draw.counts * of) / 16
    truth = share @ list(f.values())
    assert abs(corrected.mean() - truth) < 5 * corrected.std() / np.sqrt(1_000) + 1e-12
    if policy not in ("uniform", "dapo"):
        assert abs(plain.mean() - truth) > 5 * plain.std() / np.sqrt(1_000)


@pytest.mark.parametrize("policy", POLICIES)
def test_draws_do_not_depend_on_the_coding_of_rewards(policy):
    expected = train(PromptSampler(IDS, 16, policy=policy), 8)
    coded = PromptSampler(IDS, 16, policy=policy, low=-0.3, high=0.4)
    same(train(coded, 8, coded=lambda success: -0.3 + 0.7 * success), expected, 1e-6)


def test_a_reward_outside_the_range_counts_as_its_end_with_one_warning():
    clean, other = PromptSampler(IDS, 16), PromptSampler(IDS, 16)
    expected = train(clean, 4)
    with pytest.warns(UserWarning, match=r"prompt 'p\d+' has 100, outside \[0, 1\]; .* as low= and high=") as warned:
        same(train(other, 4, coded=lambda success: 100 * success), expected)
    assert len(warned) == 1


@pytest.mark.parametrize(("policy", "shared"), [(name, k % 2 == 1) for k, name in enumerate(POLICIES)])
def test_a_resumed_sampler_draws_the_same_to_the_last_bit(policy, shared):
    def made():
        return PromptSampler(IDS, 16, policy=policy, predictor=AdvantageEstimator() if shared else "kae_eb", seed=5)

    whole, first, second = made(), made(), made()
    train(whole, 6)
    train(first, 6)
    if shared:
        second.predictor.load_state_dict(first.predictor.state_dict())
    second.load_state_dict(first.state_dict())
    same([second.last_draw], [whole.last_draw])
    assert second.last_draw.step == 5
    same(train(second, 6, start=6), train(whole, 6, start=6))


@pytest.mark.parametrize("policy", ["greso", "mopps"])  # they keep counts of their own
def test_an_interrupted_call_that_comes_again_counts_once(policy, monkeypatch):
    whole, torn = (PromptSampler(IDS, 16, policy=policy, seed=5) for _ in range(2))
    train(whole, 3)
    train(torn, 2)
    rows = torn.draw(2).rows()
    rewards = np.random.default_rng([0, 2]).random(16) < VALUES[[IDS.index(key) for key in rows]]

    def interrupt(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(torn, "_store", interrupt)
        with pytest.raises(KeyboardInterrupt):
            torn.observe(rows, rewards, 2)
    torn.observe(rows, rewards, 2)
    assert dump_state(torn._columns) == dump_state(whole._columns)
    same([torn.draw(3)], [whole.draw(3)])


def test_an_estimator_that_trains_is_given_nothing_twice():
    estimator = AdvantageEstimator("kae")
    sampler = PromptSampler(IDS, 8, predictor=estimator)
    ids = sampler.draw(0).rows()
    half = ids[:4]
    estimator.step(half, [1.0] * 4, 0)
    sampler.observe(ids, [1.0] * 4 + [0.0] * 4, 0)
    assert len(estimator.history) == len(set(ids)) > len(set(half)) and estimator.history.last_step == 0
    assert estimator.predict(half[:1], 1).value[0] == 1.0


@pytest.mark.parametrize("date", [-1, 3])
def test_a_prior_or_a_history_counts_as_the_visits_that_it_holds(date):
    """As after a step at which every prompt but the last was seen with these rewards."""
    rewards = {"p0": [0.0] * 16, "p1": [0.0, 1.0] * 8, "p2": [1.0] * 16}
    ids, flat = [key for key, of in rewards.items() for _ in of], [r for of in rewards.values() for r in of]
    warm = AdvantageEstimator("kalman", prior=Prior.of_rewards(rewards, step=date))
    trained, visited = AdvantageEstimator("kalman"), PromptSampler(IDS[:4], 16, predictor="kalman")
    trained.observe(ids, flat, date + 1)
    visited.observe(ids, flat, 3)
    expected = visited.draw(4).plan
    assert expected.expected[1] > 1.5 * max(expected.expected[0], expected.expected[2])
    for predictor, step in ((warm, date + 1), (trained, date + 2)):
        found = PromptSampler(IDS[:4], 16, predictor=predictor).draw(step).plan
        assert found.prediction.lag.tolist() == [1.0, 1.0, 1.0, np.inf]
        np.testing.assert_allclose(found.prediction.value, expected.prediction.value, rtol=1e-12)
        np.testing.assert_allclose(found.expected, expected.expected, rtol=1e-12)


def test_prompts_may_vanish():
    sampler = PromptSampler(IDS, 8)
    train(sampler, 3)
    draw = sampler.draw(3, among=IDS[4:8])
    assert set(draw.prompt_ids) <= set(IDS[4:8]) and draw.counts.sum() == 8
    np.testing.assert_allclose(draw.correction, 2 / draw.expected)


def test_shares_costs_and_policies_of_ones_own_move_the_allocation():
    share, cost = np.full(12, 0.5 / 11), np.ones(12)
    share[3], cost[0] = 0.5, 16.0
    assert PromptSampler(IDS, 12, share=share, policy="uniform").draw(0).plan.expected[3] == pytest.approx(6)
    np.testing.assert_allclose(PromptSampler(IDS, 45, cost=cost).draw(0).plan.expected, [1.0] + [4.0] * 11)

    def last_alone(ask):
        return np.arange(12) == 11.0

    own = PromptSampler(IDS, 12, policy=Policy(last_alone, leaves_out=True), floor=0.5).draw(0).plan.expected
    np.testing.assert_allclose(own, [0.5] * 11 + [6.5])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(budget=10, group_size=4), "not a multiple of group_size=4"),
        (dict(budget=52, group_size=4), "more than 12 prompts can take"),
        (dict(budget=32, group_size=8, floor=0.5, share=[0.89] + [0.01] * 11), "floor to 0.28"),
        (dict(budget=8, predictor="rloo"), "keeps no history"),
        (dict(budget=8, policy="near_half", floor=0), "gives some prompts no chance"),
        (dict(budget=8, group_size=4, most=3), "leave most or group_size out"),
        (dict(budget=8, group_size=4, policy="knapsack"), "leave it out"),
    ],
)
def test_what_can_never_work_is_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        PromptSampler(IDS, **arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda sampler: sampler.draw(2, among=["p1", "nobody"]), "'nobody' is not one of the sampler's"),
        (lambda sampler: sampler.draw(2, among=["p1", "p1", "p2"]), "each prompt once"),
        (lambda sampler: sampler.observe(["p1"], [np.nan], 2), "finite"),
        (lambda sampler: sampler.observe(["p1"], [1.0], 0), "backwards"),
        (lambda sampler: sampler.load_state_dict(PromptSampler(IDS, 8, policy="spo").state_dict()), "other policy"),
        (lambda sampler: sampler.load_state_dict(PromptSampler(IDS[::-1], 8).state_dict()), "other prompt_ids"),
    ],
)
def test_a_refused_call_changes_nothing(call, message):
    sampler = PromptSampler(IDS, 8, group_size=4)
    train(sampler, 2)
    before = sampler.state_dict()
    with pytest.raises(ValueError, match=message):
        call(sampler)
    assert sampler.state_dict() == before
