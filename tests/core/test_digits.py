"""Rewards far from 0 and huge ones keep their digits, in sums of workers and of logs as well."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, AsynchronousEstimator, RewardLog, select_bandwidth, value_risk
from kaestat.baselines.registry import METHODS, make_baseline
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Groups, visit_sums
from kaestat.core.digits import variance_from

RNG = np.random.default_rng(0)
IDS = [np.repeat(RNG.permutation(12)[:9], 4) for _ in range(10)]
REWARDS = [(RNG.random(36) < 0.2 + 0.5 * (ids % 2)) * 1.0 for ids in IDS]
WEIGHTS = [RNG.random(36) + 0.5 for _ in IDS]
NAMES = [name for name in METHODS if name != "bnpo" and not make_baseline(name).missing_input]


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


@pytest.mark.filterwarnings("ignore:.*few of the 12 prompts")
def test_a_log_far_from_zero_is_analysed_as_its_differences():
    step = np.repeat(np.arange(10), 36)
    near, far = (RewardLog(np.concatenate(IDS), step, low + np.concatenate(REWARDS)) for low in (0.0, 1e8))
    methods = ["kae", "kae_eb", "kae_eb:bandwidth=5", "local_linear", "bayes_filter", "rloo"]
    expected, found = (value_risk(log, methods, n_boot=0)["mse"] for log in (near, far))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    for selector in ("auto", "loo_cv"):
        assert np.isclose(select_bandwidth(far, selector).bandwidth, select_bandwidth(near, selector).bandwidth)


@pytest.mark.parametrize("name", [name for name in NAMES if not isinstance(make_baseline(name), RangedBaseline)])
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
