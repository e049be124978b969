"""MaxRL (Tajwar et al., 2026): SkyRL's numbers, and the objective behind them."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, Groups, make_baseline
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.method_case import MethodCase
from tests.helpers.references import group_mean


def skyrls(rewards, index, epsilon=1e-6):
    """``compute_maxrl_advantage`` of SkyRL (skyrl/backends/skyrl_train/utils/ppo_utils.py), on sums over tokens."""
    found = []
    for reward, name in zip(rewards, index, strict=True):
        group = [z for z, other in zip(rewards, index, strict=True) if other == name]
        mean = sum(group) / len(group)
        found.append((reward - mean) / (mean + epsilon) if len(group) > 1 else reward)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_advantages_are_skyrls_in_groups_of_two_and_more(seed):
    rng = np.random.default_rng(seed)
    index = rng.permutation(np.repeat(np.arange(40), rng.integers(2, 9, 40))).tolist()
    rewards = rng.choice([0.0, 0.0, 0.25, 1.0], len(index))
    found = AdvantageEstimator("maxrl").step(index, rewards, 0)
    np.testing.assert_allclose(found, skyrls(rewards, index), rtol=1e-12, atol=1e-12)


def test_the_mean_update_is_the_gradient_of_the_expansion_to_one_order_less_than_completions():
    # One logit: a success has score 1 - p, a failure -p, and -sum_{k <= n} (1 - p)^k / k has this slope in the logit.
    size, p = 4, 0.3
    outcomes = np.array(np.meshgrid(*[[0.0, 1.0]] * size)).reshape(size, -1).T
    probability = np.prod(np.where(outcomes == 1, p, 1 - p), axis=1)
    advantages = AdvantageEstimator("maxrl").step(np.repeat(np.arange(len(outcomes)), size), outcomes.ravel(), 0)
    successes = outcomes / np.maximum(outcomes.mean(axis=1, keepdims=True), 1 / size)  # without the mean taken off

    def slope(order):
        return p * (1 - p) * sum((1 - p) ** k for k in range(order))

    for weights, order in ((advantages.reshape(outcomes.shape), size - 1), (successes, size)):
        assert probability @ (weights * (outcomes - p)).mean(axis=1) == pytest.approx(slope(order), rel=1e-5)


def test_the_divisor_is_the_success_rate_whatever_the_weights():
    packed = groups([1, 0, 0, 1], weights=[[1, 2, 3, 4]])
    baseline = make_baseline("maxrl")
    assert baseline.values(packed, NO_PAST, step=0)[0, 0] == 0.5
    assert baseline.deviation(groups([1, 0, 0], weights=[[9, 1, 1]]), NO_PAST, step=0)[0, 0] == 1 / 3 + 1e-6
    empty = Groups(np.full((1, 2), -7.0), mask=np.zeros((1, 2), dtype=bool))
    assert baseline.deviation(empty, NO_PAST, step=0).tolist() == [[1e-6]]


CASES = [MethodCase("maxrl", lambda case: group_mean(case, without_own=False), weighted=True)]
