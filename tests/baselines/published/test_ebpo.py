"""EBPO (Han et al., 2026): running moments updated before use, and the weight of a completion's own reward."""

from statistics import fmean, variance

import numpy as np

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines import Ebpo
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.method_case import MethodCase
from tests.helpers.references import per_completion


def test_moments_are_those_of_everything_seen_far_from_zero_too():
    rng = np.random.default_rng(0)
    baseline, carry, seen = make_baseline("ebpo"), None, []
    for step in range(20):
        rewards = rng.random((3, 4)) + 1e6  # a naive sum of squares would lose the variance
        carry = baseline.advance(carry, groups(*rewards), NO_PAST, step=step)
        seen.append(rewards)
    n, mean, squares = carry["rewards"]
    np.testing.assert_allclose([n, mean, squares / (n - 1)], [240, np.mean(seen), np.var(seen, ddof=1)], rtol=1e-9)


def test_rewards_that_never_vary_are_not_shrunk():
    # sigma^2 = tau^2 = 0: S is 0. A reward of 0 for one of them gives
    # sigma^2 = 1/4, tau^2 = 1/8 and S = 1/2, so its value goes from 1 to (1/2 + 3/4) / 2 = 5/8.
    baseline, alike = make_baseline("ebpo"), groups([1, 1], [1, 1])
    np.testing.assert_array_equal(baseline.values(alike, NO_PAST, step=0), np.ones((2, 2)))
    np.testing.assert_allclose(baseline.own_derivative(alike, NO_PAST, step=0), np.full((2, 2), 3 / 8))


def test_single_precision_does_not_stop_the_count_in_a_long_run():
    many = {"rewards": np.array([2.0**25, 0.5, 2.0**23]), "group_means": np.array([2.0**22, 0.5, 2.0**20])}
    half = Groups(np.ones((2, 3), dtype=np.float32))
    assert make_baseline("ebpo").advance(many, half, NO_PAST, step=9)["rewards"][0] == 2**25 + 6
    assert make_baseline("ebpo").values(half, NO_PAST, step=0, carry=many).dtype == np.float32


def test_masked_completions_have_no_derivative_and_change_none():
    reward, mask = np.array([[1.0, 0.0, 9.0], [0.0, 1.0, 1.0]]), np.array([[True, True, False], [True, True, True]])
    own, other = (
        Ebpo().own_derivative(each, Visits.empty(each), step=0)
        for each in (Groups(reward, mask=mask), Groups(np.where(mask, reward, -5.0), mask=mask))
    )
    np.testing.assert_array_equal(own, other)
    assert own[0, 2] == 0 and (own[mask] > 0).all()


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


CASES = [MethodCase("ebpo", ebpo)]
