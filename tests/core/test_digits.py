"""Rewards far from 0 and huge ones: every method gives what it gives at ordinary ones, or refuses them."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, AsynchronousEstimator, RewardLog, select_bandwidth, value_risk
from kaestat.baselines.registry import METHODS, make_baseline
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Groups, visit_sums
from kaestat.core.digits import variance_from

NAMES = [name for name in METHODS if not make_baseline(name).missing_input]
OF_THEIR_ZERO = {"none", "krpo"}  # begin from what counts from 0, as published
FAR = [(1e8, 1.0), (-1e5, 1e-3)]
RNG = np.random.default_rng(0)
IDS = [np.repeat(RNG.permutation(12)[:9], 4) for _ in range(10)]
REWARDS = [(RNG.random(36) < 0.2 + 0.5 * (ids % 2)) * 1.0 for ids in IDS]
WEIGHTS = [RNG.random(36) + 0.5 for _ in IDS]


def estimators(low, span):
    """An estimator of every method in every order, and whether its completions have weights."""
    for name in [*NAMES, "outside_value", "kae:bandwidth=10,cold_start=0.5", "kae_eb:bandwidth=loo_cv"]:
        method, params = name.replace("0.5", repr(low + 0.5 * span)), {}
        if name == "outside_value":
            params["outside"] = {key: low + span * key / 12 for key in range(12)}
        baseline = AdvantageEstimator(method, **params).baseline
        if isinstance(baseline, RangedBaseline):
            params |= {"low": low, "high": low + span}
        for kind in (AdvantageEstimator, AsynchronousEstimator)[: 1 if baseline.in_order_only else 2]:
            may_weigh = (
                baseline.takes_weights and kind is AdvantageEstimator
            )  # else completions are made from sums: near, not equal
            for weighted in {baseline.needs_weights, baseline.needs_weights or may_weigh}:
                yield name, weighted, kind(method, scale="none", **params)


def run(estimator, weighted, low, span):
    """Values of a run, and predictions after it, on the scale of zeros and ones."""
    found = []
    for step, (ids, rewards, weights) in enumerate(zip(IDS, REWARDS, WEIGHTS, strict=True)):
        estimator.step(ids, low + span * rewards, step, weights=weights if weighted else None)
        found.append(estimator.values)
    if estimator.baseline.horizon and not estimator.method.startswith("local"):  # a trend is cut at 0 and 1
        found.append(estimator.predict(list(range(12)), len(IDS)).value)
    return (np.concatenate(found) - low) / span


@pytest.mark.parametrize(("low", "span"), FAR)
def test_what_a_method_computes_does_not_depend_on_the_zero_and_the_unit_of_rewards(low, span):
    differs = set()
    for (name, weighted, usual), (*_, far) in zip(estimators(0.0, 1.0), estimators(low, span), strict=True):
        if name == "james_stein" and span != 1:
            continue  # its published epsilon is an amount of reward
        if np.abs(run(usual, weighted, 0.0, 1.0) - run(far, weighted, low, span)).max() > 1e-6:
            differs.add(name)
    assert differs == OF_THEIR_ZERO


def test_workers_with_other_first_rewards_merge_what_they_recorded_far_from_zero():
    """Each subtracts the lowest reward of its own first step."""
    whole, one, two = (AsynchronousEstimator("kae_eb", keep_deltas=True) for _ in range(3))
    for step, (ids, rewards) in enumerate(zip(IDS, REWARDS, strict=True)):
        rewards = 1e8 + np.maximum(rewards, step == 0)
        whole.observe(ids, rewards, step)
        (one if step % 2 else two).observe(ids, rewards, step)
    expected, both = whole.step(IDS[0], 1e8 + REWARDS[1], 10), one.take_delta().merge(two.take_delta())
    for worker in (one, two, AsynchronousEstimator("kae_eb")):
        worker.merge(type(both).from_bytes(both.to_bytes()))
        again = AsynchronousEstimator("kae_eb")
        again.load_state_dict(worker.state_dict())
        np.testing.assert_allclose(again.step(IDS[0], 1e8 + REWARDS[1], 10), expected, atol=1e-6)


def test_a_log_far_from_zero_is_analysed_as_its_differences():
    step = np.repeat(np.arange(10), 36)
    near, far = (RewardLog(np.concatenate(IDS), step, low + np.concatenate(REWARDS)) for low in (0.0, 1e8))
    methods = ["kae", "kae_eb", "kae_eb:bandwidth=5", "local_linear", "bayes_filter", "rloo"]
    expected, found = (value_risk(log, methods, n_boot=0)["mse"] for log in (near, far))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    for selector in ("auto", "loo_cv"):
        assert np.isclose(select_bandwidth(far, selector).bandwidth, select_bandwidth(near, selector).bandwidth)


@pytest.mark.parametrize(
    "name", sorted(set(NAMES) - {"bnpo", *(n for n in NAMES if isinstance(make_baseline(n), RangedBaseline))})
)
def test_advantages_of_the_largest_rewards_are_in_proportion(name):
    def trial(unit):
        estimator = AdvantageEstimator(name)
        weighted = estimator.baseline.needs_weights
        steps = enumerate(zip(IDS, REWARDS, WEIGHTS, strict=True))
        return np.array([estimator.step(i, unit * r, t, weights=w if weighted else None) for t, (i, r, w) in steps])

    expected, found = trial(1e40), trial(1e70)
    scale = np.abs(found).max() / np.abs(expected).max()
    assert np.isclose(scale, 1.0) or np.isclose(scale, 1e30)
    np.testing.assert_allclose(found / scale, expected, atol=1e-9 * np.abs(expected).max())


def test_equal_rewards_have_no_variance_also_where_a_visit_has_thousands():
    """Sums from first to last lose a digit for every tenfold of completions: a fifth of these had a variance."""
    reward = np.repeat(np.linspace(0.05, 20, 400)[:, None], 2048, axis=1)
    sums = visit_sums(Groups(reward))
    mean, square = (sums[name] / sums["count"] for name in ("total", "total_sq"))
    assert not variance_from(square, mean).any()
    assert variance_from(square * (1 + 1e-13), mean).all()
