"""BNPO (Xiao et al., 2025): the numbers of the authors' code and its corners."""

import math
import statistics

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator, Groups, make_baseline
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.method_case import MethodCase
from tests.helpers.references import group_mean


def authors(rewards, index):
    """``compute_bnpo_outcome_advantage`` of changyi7231/BNPO (recipe/bnpo/src/bnpo_ray_trainer.py), in plain loops."""
    of = {}
    for reward, name in zip(rewards, index, strict=True):
        of.setdefault(name, []).append(reward)
    p = {name: statistics.fmean(group) for name, group in of.items()}
    mean, variance = (statistics.fmean(p.values()), statistics.variance(p.values())) if len(p) > 1 else (0.0, 1.0)
    a, b = ((mean * (1 - mean) / variance - 1) * share for share in (mean, 1 - mean))
    density = torch.distributions.Beta(*(torch.tensor(max(1.0, 1 + x / 3), dtype=torch.double) for x in (a, b)))
    weight = {name: density.log_prob(torch.tensor(of_p, dtype=torch.double)).exp() for name, of_p in p.items()}
    return [min(float(1 / weight[k]), 1e6) * (z - p[k]) for z, k in zip(rewards, index, strict=True)]


@pytest.mark.parametrize("seed", range(8))
def test_advantages_are_the_authors_in_groups_of_two_and_more(seed):
    rng = np.random.default_rng(seed)
    n_prompts = (3, 5, 10, 40)[seed % 4]
    rates = rng.beta(*rng.uniform(0.3, 5.0, 2), n_prompts)
    index = np.repeat(np.arange(n_prompts), rng.integers(2, 9, n_prompts))
    index = index[rng.permutation(len(index))].tolist()
    rewards = (rng.random(len(index)) < rates[index]).astype(float) if seed < 4 else rng.random(len(index))
    found = AdvantageEstimator("bnpo").step(index, rewards, 0)
    np.testing.assert_allclose(found, authors(rewards.tolist(), index), rtol=1e-9, atol=1e-12)


def test_groups_that_do_as_well_as_each_other_are_left_as_they_are_where_the_authors_code_gives_no_number():
    rewards, index = [1.0, 0.0, 0.0, 1.0], ["a", "a", "b", "b"]
    assert AdvantageEstimator("bnpo").step(index, rewards, 0).tolist() == [0.5, -0.5, -0.5, 0.5]
    with pytest.raises(ZeroDivisionError):
        authors(rewards, index)


def test_a_lone_completion_has_advantage_zero_and_its_reward_counts_among_the_means():
    found = AdvantageEstimator("bnpo").step(["a", "b", "b", "c", "c"], [1.0, 1.0, 0.0, 0.0, 0.0], 0)
    assert found[0] == 0.0
    assert found.tolist() == pytest.approx(authors([1.0, 1.0, 0.0, 0.0, 0.0], list("abbcc")), rel=1e-9)


def test_empty_groups_do_not_enter_the_moments():
    rows = [[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 0]]
    baseline = make_baseline("bnpo")
    alone = baseline.deviation(groups(*rows[:3]), NO_PAST, step=0)
    reward = np.array(rows, dtype=float)
    empty = Groups(reward, mask=np.arange(4)[:, None] < 3 * np.ones(3))
    np.testing.assert_allclose(baseline.deviation(empty, NO_PAST, step=0)[:3], alone, rtol=1e-12)
    assert not math.isclose(baseline.deviation(Groups(reward), NO_PAST, step=0)[0, 0], alone[0, 0], rel_tol=1e-3)


def test_one_group_alone_is_warned_of_as_it_is_dr_grpo():
    with pytest.warns(UserWarning, match="a single group"):
        found = AdvantageEstimator("bnpo").step(["a"] * 4, [1.0, 0.0, 0.0, 1.0], 0)
    np.testing.assert_array_equal(found, AdvantageEstimator("dr_grpo").step(["a"] * 4, [1.0, 0.0, 0.0, 1.0], 0))


CASES = [MethodCase("bnpo", lambda case: group_mean(case, without_own=False), weighted=True)]
