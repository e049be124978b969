"""Chernoff and score intervals: a slow reference, hand-computed ends, ranges, coverage where the others fail."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from kaestat.core.arrays import Groups, Visits
from kaestat.inference import LinearFit, value_interval
from kaestat.inference.chernoff import chernoff_interval
from tests.helpers.statistical import Discrepancy, check_mean, generator

Z = 1.959963984540054


def slow_upper_end(mean, weight, count, lag, lipschitz, level):
    """The largest p that is not rejected, by a grid and a root finder in place of Newton's steps."""

    def least(p):
        q = np.clip(p - lipschitz * lag, 0, 1)

        def bound(log_tilt):
            tilt = math.exp(log_tilt)
            return tilt * mean + np.sum(count * np.log(1 - q + q * np.exp(-tilt * weight)))

        grid = np.linspace(-8, math.log(600 / weight.max()), 300)
        values = [bound(x) for x in grid]
        k = int(np.argmin(values))
        near = minimize_scalar(bound, bounds=(grid[max(k - 1, 0)], grid[min(k + 1, 299)]), method="bounded")
        return min(0.0, values[k], near.fun) - math.log((1 - level) / 2)

    last = 1 - 1e-13
    return 1.0 if least(last) >= 0 else brentq(least, mean, last, xtol=1e-12)


def random_case(rng):
    depth, group, p = rng.integers(0, 12), rng.integers(1, 9), rng.choice([0, 0.05, 0.3, 0.5, 0.9, 1])
    count = rng.integers(1, 9, size=(1, depth)).astype(float)
    lag = np.sort(rng.choice(np.arange(1, 40), size=depth, replace=False))[::-1][None].astype(float)
    total = rng.binomial(count.astype(int), p).astype(float)
    return Groups((rng.random((1, group)) < p).astype(float)), Visits(lag, count, total, total)


@pytest.mark.parametrize("seed", range(25))
def test_both_ends_are_those_of_the_slow_reference(seed):
    rng = np.random.default_rng(seed)
    groups, visits = random_case(rng)
    bandwidth, lipschitz, level = rng.choice([5.0, 12.0, 100.0]), rng.choice([0, 0.001, 0.01, 0.05]), 0.9
    fit = LinearFit.kernel_mean(groups, visits, step=50, bandwidth=bandwidth)
    low, high = chernoff_interval(fit, level, (0.0, 1.0), lipschitz)
    made = (fit.weight[0], fit.sample.count[0], fit.sample.lag[0], lipschitz, level)
    # Ends are never too far in, and too far out by little, or by 1e-4 close to the bounds.
    for ours, slow in (
        (high[0], slow_upper_end(fit.estimate[0], *made)),
        (1 - low[0], slow_upper_end(1 - fit.estimate[0], *made)),
    ):
        assert slow - 1e-8 <= ours <= slow + (2e-6 if slow < 1 - 2e-4 else 1e-4)


def test_equal_weights_without_drift_give_the_closed_form_of_relative_entropy():
    """k of n: the p with ``n KL(k / n, p) = log(2 / delta)``."""
    groups = Groups(np.array([[1.0] * 3 + [0.0] * 7]))
    interval = value_interval(groups, Visits.empty(groups), step=0)

    def missing(p):
        return 10 * (0.3 * math.log(0.3 / p) + 0.7 * math.log(0.7 / (1 - p))) - math.log(40)

    assert interval.kind == "chernoff"  # the default
    assert interval.low[0] == pytest.approx(brentq(missing, 1e-9, 0.3), abs=2e-6)
    assert interval.high[0] == pytest.approx(brentq(missing, 0.3, 1 - 1e-9), abs=2e-6)


def test_score_intervals_are_wilsons():
    groups = Groups(np.array([[1.0] * 3 + [0.0] * 7]))
    interval = value_interval(groups, Visits.empty(groups), step=0, kind="score")
    for end in (interval.low[0], interval.high[0]):
        assert (0.3 - end) ** 2 == pytest.approx(Z**2 * end * (1 - end) / 10)
    wide = value_interval(groups, Visits(*[np.array([[k]]) for k in (4.0, 10.0, 3.0, 3.0)]), step=4, kind="score",
                          bandwidth=8, lipschitz=0.03)  # fmt: skip
    mean, n, bias = 0.3, (3 * 10) ** 2 / (4 * 10 + 10), 0.03 * 4 / 3  # weights 2 and 1
    for end in (wide.low[0] + bias, wide.high[0] - bias):
        assert (mean - end) ** 2 == pytest.approx(Z**2 * end * (1 - end) / n)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_score_intervals_of_rewards_that_are_all_alike_end_at_them(reward):
    groups = Groups(np.full((1, 7), reward))
    interval = value_interval(groups, Visits.empty(groups), step=0, kind="score")
    assert interval.low.item() <= reward <= interval.high.item()
    assert interval.high.item() - interval.low.item() == pytest.approx(Z**2 / (7 + Z**2))


@pytest.mark.parametrize("kind", ["chernoff", "score"])
def test_other_ranges_are_other_units_alone(kind):
    groups, visits = random_case(np.random.default_rng(7))
    plain = value_interval(groups, visits, step=50, kind=kind, lipschitz=0.01)
    moved = Visits(
        visits.lag, visits.count, 4 * visits.total - 2 * visits.count, 16 * visits.total_sq - 12 * visits.total + 4
    )
    other = value_interval(Groups(4 * groups.reward - 2), moved, step=50, kind=kind, lipschitz=0.04, bounds=(-2.0, 2.0))
    np.testing.assert_allclose([other.low, other.high], [4 * plain.low - 2, 4 * plain.high - 2], atol=1e-5)
    with pytest.raises(ValueError, match=r"rewards lie outside bounds=\(0.0, 1.0\)"):
        value_interval(Groups(4 * groups.reward - 2), moved, step=50, kind=kind)


def falling(value: float, drift: float, group: int, depth: int, n: int, salt: int):
    rng = generator(salt)
    path = value + drift * np.arange(depth, -1.0, -1)
    total = rng.binomial(group, path[:-1], size=(n, depth)).astype(float)
    lag = np.arange(depth, 0.0, -1) + np.zeros_like(total)
    return Groups((rng.random((n, group)) < value).astype(float)), Visits(
        lag, np.full_like(total, float(group)), total, total
    )


def covered(interval, value):
    return ((interval.low <= value) & (value <= interval.high)).astype(float)


@pytest.mark.parametrize("drift", [0.0, 0.01])
def test_rare_successes_and_few_visits_are_covered_by_default_and_not_by_the_normal_approximation(drift):
    """Value .05, two completions, twelve visits, bandwidth 10."""
    groups, visits = falling(0.05, drift, 2, 12, 6000, salt=41)
    made = dict(step=12, bandwidth=10)
    default = value_interval(groups, visits, lipschitz=drift, **made)
    check_mean(covered(default, 0.05), target=0.95, detect=0.02, side="at least")
    se = np.sqrt(default.estimate * (1 - default.estimate) / default.effective_size)
    with pytest.raises(Discrepancy):
        normal = np.abs(default.estimate - 0.05) <= Z * se
        check_mean(normal.astype(float), target=0.95, detect=0.06, side="at least")
