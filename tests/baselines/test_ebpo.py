"""EBPO (Han et al., 2026): Welford accumulators updated before use."""

from statistics import fmean, variance

import numpy as np

from kaestat import AdvantageEstimator, Groups, make_baseline
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.method_case import MethodCase
from tests.helpers.references import per_completion


def test_two_steps_by_hand():
    estimator = AdvantageEstimator("ebpo")
    estimator.step(["a", "a", "b", "b"], [1.0, 0, 1, 1], 0)
    # rewards 1, 0, 1, 1: mu = .75, sigma^2 = .25; group means .5, 1: tau^2 = .125; S = .125 / (.125 + .125) = 1/2
    np.testing.assert_allclose(estimator.values, [0.625, 0.625, 0.875, 0.875], rtol=1e-12)
    estimator.step(["c", "c"], [0.0, 0], 1)
    # rewards 1, 0, 1, 1, 0, 0: mu = .5, sigma^2 = .3; means .5, 1, 0: tau^2 = .25; S = .15 / .4 = .375
    np.testing.assert_allclose(estimator.values, [0.375 * 0.5] * 2, rtol=1e-12)


def test_one_completion_in_all_is_its_own_value():
    assert make_baseline("ebpo").values(groups([1]), NO_PAST, step=0).tolist() == [[1.0]]


def test_accumulators_equal_the_moments_of_everything_seen():
    rng = np.random.default_rng(0)
    baseline, carry, seen = make_baseline("ebpo"), None, []
    for step in range(20):
        rewards = rng.random((3, 4)) + 1e6  # far from 0: a naive sum of squares would lose the variance
        carry = baseline.advance(carry, groups(*rewards), NO_PAST, step=step)
        seen.append(rewards)
    everything = np.concatenate(seen)
    n, mean, m2 = carry["rewards"]
    np.testing.assert_allclose([n, mean, m2 / (n - 1)], [240, everything.mean(), everything.var(ddof=1)], rtol=1e-9)


def test_the_carry_keeps_its_shape_from_the_start():
    baseline = make_baseline("ebpo")
    start = baseline.initial_carry()
    later = baseline.advance(start, groups([1, 0], [1]), NO_PAST, step=0)
    assert {name: a.shape for name, a in start.items()} == {name: a.shape for name, a in later.items()}


def test_rewards_that_never_vary_are_not_shrunk():
    # sigma^2 = tau^2 = 0: S is 0. One reward less by 1 brings the value from 1 to the 5/8 of the first step by hand.
    baseline, alike = make_baseline("ebpo"), groups([1, 1], [1, 1])
    np.testing.assert_array_equal(baseline.values(alike, NO_PAST, step=0), np.ones((2, 2)))
    np.testing.assert_allclose(baseline.own_derivative(alike, NO_PAST, step=0), np.full((2, 2), 3 / 8))


def test_values_have_the_precision_of_the_rewards():
    half = Groups(np.ones((2, 3), dtype=np.float32))
    assert make_baseline("ebpo").values(half, NO_PAST, step=0).dtype == np.float32


def test_single_precision_does_not_stop_the_count_in_a_long_run():
    many = {"rewards": np.array([2.0**25, 0.5, 2.0**23]), "group_means": np.array([2.0**22, 0.5, 2.0**20])}
    half = Groups(np.ones((2, 3), dtype=np.float32))
    assert make_baseline("ebpo").advance(many, half, NO_PAST, step=9)["rewards"][0] == 2**25 + 6


def ebpo(case):
    """All rewards and group means so far, this step's included, kept in lists instead of accumulators."""
    rewards = [z for step in case.earlier for _, row in step for z in row] + [z for row in case.rewards for z in row]
    means = [fmean(row) for step in case.earlier for _, row in step] + [fmean(row) for row in case.rewards]
    mu = fmean(rewards)
    sigma2 = variance(rewards) if len(rewards) > 1 else 0.0
    tau2 = variance(means) if len(means) > 1 else 0.0

    def value(p, g):
        noise = sigma2 / len(case.rewards[p])
        shrinkage = noise / (noise + tau2) if noise + tau2 > 0 else 0.0
        return (1 - shrinkage) * fmean(case.rewards[p]) + shrinkage * mu

    return per_completion(case, value)


CASES = [MethodCase("ebpo", ebpo, sees_own=True)]
