"""MC-GRPO (Kim, 2026): the author's numbers, the pivot, and what its division does with rewards of 0 and 1."""

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator, Groups, make_baseline
from tests.helpers.method_case import MethodCase
from tests.helpers.references import per_completion


def authors(rewards, size):
    """``grpo_trainer_math.py`` of lotusroot-kim/MC-GRPO (da07745) with ``mc=True``, in the words of its tensors."""
    grouped = torch.tensor(rewards, dtype=torch.float64).view(-1, size)
    median = grouped.median(dim=1)
    mad = (grouped - median.values.unsqueeze(1)).abs().median(dim=1).values + 1e-3
    kept = torch.ones_like(grouped, dtype=torch.bool)
    kept[torch.arange(len(grouped)), median.indices] = False
    return ((grouped - median.values.unsqueeze(1)) / mad.unsqueeze(1)).view(-1).numpy(), kept.view(-1).numpy()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("levels", [(0.0, 1.0), (0.0, 0.25, 1.0, 1.5)])
def test_advantages_are_the_authors(size, levels):
    rewards = np.random.default_rng(size).choice(levels, 60 * size)
    expected, _ = authors(rewards, size)
    found = AdvantageEstimator("mc_grpo").step(np.repeat(np.arange(60), size), rewards, 0)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert np.ptp(expected) > 0 or size == 1


@pytest.mark.parametrize("size", [1, 3, 5])
def test_without_ties_the_pivot_is_the_completion_that_the_author_drops(size):
    rewards = np.random.default_rng(0).random((40, size))
    pivot = make_baseline("mc_grpo").pivot(Groups(rewards))
    np.testing.assert_array_equal(~pivot.reshape(-1), authors(rewards.reshape(-1), size)[1])


def test_a_pivot_is_never_padding():
    masked = Groups(np.array([[9.0, 0.3, 0.1, 0.3]]), mask=np.array([[False, True, True, True]]))
    assert make_baseline("mc_grpo").pivot(masked).tolist() == [[False, True, False, False]]
    empty = Groups(np.zeros((1, 3)), mask=np.zeros((1, 3), dtype=bool))
    assert not make_baseline("mc_grpo").pivot(empty).any()


def mc_grpo(case):
    """``torch.median`` of the group: the middle reward, of an even number the lower of both."""
    return per_completion(case, lambda p, g: sorted(case.rewards[p])[(len(case.rewards[p]) - 1) // 2])


CASES = [MethodCase("mc_grpo", mc_grpo)]
