"""REINFORCE++: the batch mean, advantages whitened over the batch (design, section 4)."""

from itertools import chain

import numpy as np

from kaestat import AdvantageEstimator, make_baseline
from kaestat.baselines import BatchMean
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.method_case import MethodCase
from tests.helpers.references import per_completion, weighted_mean


def test_a_lone_completion_left_out_has_value_zero():
    assert BatchMean(without_own=True).values(groups([1]), NO_PAST, step=0).tolist() == [[0.0]]


def test_weighted_batch_mean_and_own_share():
    # (2*1 + 1*0 + 1*1) / 4; shares 2/4, 1/4, 1/4
    weighted = groups([1, 0], [1], weights=[[2, 1], [1]])
    values = make_baseline("reinforce++").values(weighted, NO_PAST, step=0)
    own = make_baseline("reinforce++").own_derivative(weighted, NO_PAST, step=0)
    np.testing.assert_allclose([values[0, 0], values[1, 0]], 3 / 4)
    np.testing.assert_allclose([own[0, 0], own[0, 1], own[1, 0]], [0.5, 0.25, 0.25])


def test_advantages_are_whitened_over_the_batch():
    # rewards 1, 0, 1, 0: mean 1/2, variance 4 * (1/4) / 3 = 1/3
    advantages = AdvantageEstimator("reinforce++").step(["a", "a", "b", "c"], [1.0, 0, 1, 0], 0)
    np.testing.assert_allclose(advantages, np.array([0.5, -0.5, 0.5, -0.5]) / np.sqrt(1 / 3 + 1e-8), rtol=1e-12)


def test_a_step_of_no_weight_has_value_and_own_weight_zero():
    weightless = groups([1, 1], [0, 1], weights=[[0.0, 0.0], [0.0, 0.0]])
    for of in (make_baseline("reinforce++").values, make_baseline("reinforce++").own_derivative):
        np.testing.assert_array_equal(of(weightless, NO_PAST, step=0), np.zeros((2, 2)))


def batch_mean(case):
    mean = weighted_mean([*chain(*case.rewards)], [*chain(*case.weights)])
    return per_completion(case, lambda p, g: mean)


def test_the_advantage_is_the_reward():
    np.testing.assert_array_equal(AdvantageEstimator("none").step(["a", "a", "b"], [1.0, 0.25, 0.0], 0), [1, 0.25, 0])


def zero(case):
    return per_completion(case, lambda p, g: 0.0)


CASES = [MethodCase("reinforce++", batch_mean, weighted=True), MethodCase("none", zero, weighted=True)]
