"""Pass@k by GRPO (Tang et al., 2025): verl's numbers, and the objective behind them."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from tests.helpers.method_case import MethodCase
from tests.helpers.references import others, per_completion


def verls(rewards, index, *, by_std=True, epsilon=1e-6):
    """``compute_grpo_passk_outcome_advantage`` of verl 0.9.1 (verl/trainer/ppo/core_algos.py), on sums over tokens."""
    advantages = [0.0] * len(rewards)
    for name in set(index):
        rows = sorted((row for row, other in enumerate(index) if other == name), key=lambda row: -rewards[row])
        group = [rewards[row] for row in rows]
        advantages[rows[0]] = (group[0] - group[1]) / (np.std(group, ddof=1) + epsilon if by_std else 1.0)
    return advantages


@pytest.mark.parametrize(("scale", "by_std"), [(None, True), ("none", False)])
@pytest.mark.parametrize("levels", [(0.0, 1.0), (0.0, 0.0, 0.0, 1.0), (0.0, 0.25, 0.5, 1.0)])
def test_advantages_are_verls(scale, by_std, levels):
    rng = np.random.default_rng(len(levels))
    index = rng.permutation(np.repeat(np.arange(60), rng.integers(2, 7, 60))).tolist()
    rewards = rng.choice(levels, len(index))
    found = AdvantageEstimator("grpo_passk", scale=scale).step(index, rewards, 0)
    expected = verls(rewards, index, by_std=by_std)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert np.count_nonzero(expected) > 5


def test_the_mean_update_is_the_gradient_of_pass_at_the_groups_size():
    # One logit: a success has score 1 - p, a failure -p; pass@G = 1 - (1 - p)^G has slope G (1 - p)^(G - 1) p (1 - p).
    size, p = 4, 0.3
    outcomes = np.array(np.meshgrid(*[[0.0, 1.0]] * size)).reshape(size, -1).T
    probability = np.prod(np.where(outcomes == 1, p, 1 - p), axis=1)
    index = np.repeat(np.arange(len(outcomes)), size)
    advantages = AdvantageEstimator("grpo_passk", scale="none").step(index, outcomes.ravel(), 0)
    update = probability @ (advantages.reshape(outcomes.shape) * (outcomes - p)).sum(axis=1)
    assert update == pytest.approx(size * (1 - p) ** (size - 1) * p * (1 - p), rel=1e-12)


def grpo_passk(case):
    """What verl's advantage, only for the best by its lead over the second, leaves of each reward."""

    def value(p, g):
        own, rest = case.rewards[p][g], others(case.rewards[p], g)
        return own - max(own - max(rest), 0.0) if rest else own

    return per_completion(case, value)


CASES = [MethodCase("grpo_passk", grpo_passk)]
