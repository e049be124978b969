"""Cutting a step into blocks of prompts changes no value, whatever has leading axes or one row for all prompts."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import torch

from kaestat import Groups, Visits, make_baseline
from kaestat.core.arrays import over_prompts

RNG = np.random.default_rng(0)


def a_step(n_prompts=7, group=3, n_visits=4, *, masked=False, weighted=False):
    shape = (n_prompts, n_visits)
    count = RNG.integers(0, 4, size=shape).astype(float)
    total, weight = RNG.random(shape) * count, RNG.random(shape) * count
    sums = {"weight": weight, "weight_sq": weight, "weighted_total": weight * 0.3, "weighted_total_sq": weight * 0.2}
    groups = Groups(
        reward=RNG.random((n_prompts, group)),
        mask=RNG.random((n_prompts, group)) < 0.6 if masked else None,
        weight=RNG.random((n_prompts, group)) if weighted else None,
    )
    lag = np.broadcast_to(np.arange(n_visits, 0.0, -1.0), shape)
    return groups, Visits(lag=lag, count=count, total=total, total_sq=total, **(sums if weighted else {}))


def test_visits_of_rewards_are_their_sums():
    reward = np.array([[[1.0, 0.5], [0.0, 2.0]], [[1.0, 1.0], [-1.0, 0.0]]])
    weight = np.array([[[1.0, 3.0], [2.0, 0.0]], [[0.5, 0.5], [4.0, 1.0]]])
    visits = Visits.of([5, 2], reward, weight)
    for name, sums in {
        "lag": [[5, 2], [5, 2]],
        "count": [[2, 2], [2, 2]],
        "total": [[1.5, 2], [2, -1]],
        "total_sq": [[1.25, 4], [2, 1]],
        "weight": [[4, 2], [1, 5]],
        "weight_sq": [[10, 4], [0.5, 17]],
        "weighted_total": [[2.5, 0], [1, -4]],
        "weighted_total_sq": [[1.75, 0], [1, 4]],
        "weight_sq_total": [[5.5, 0], [0.5, -16]],
        "weight_sq_total_sq": [[3.25, 0], [0.5, 16]],
    }.items():
        np.testing.assert_array_equal(getattr(visits, name), np.array(sums, dtype=float), err_msg=name)
    assert Visits.of([5, 2], reward).weight is None
    tensors = Visits.of(torch.tensor([5, 2]), torch.from_numpy(reward))
    assert tensors.lag.dtype == torch.float64
    np.testing.assert_array_equal(tensors.total_sq.numpy(), visits.total_sq)


def test_missing_sums_of_squared_weights_are_filled_in_as_if_squares_went_with_weights():
    visits = Visits.of([2, 1], np.array([[[1.0, 0.5], [0.0, 2.0]]]), np.array([[[1.0, 3.0], [0.0, 0.0]]]))
    np.testing.assert_array_equal(visits.mass_sq_carried, [[5.5, 0]])
    without = replace(visits, weight_sq_total=None, weight_sq_total_sq=None)
    np.testing.assert_allclose(without.mass_sq_carried, [[10 * 2.5 / 4, 0]])
    np.testing.assert_allclose(without.mass_sq_carried_sq, [[10 * 1.75 / 4, 0]])
    plain = Visits.of([2, 1], np.array([[[1.0, 0.5], [0.0, 2.0]]]))
    assert plain.mass_sq_carried is plain.total and plain.mass_sq_carried_sq is plain.total_sq


def test_visits_of_successes_are_those_of_rewards_of_0_and_1():
    reward = np.array([[[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    by_rewards, by_successes = Visits.of([5, 2], reward), Visits.of_successes([5, 2], reward.sum(axis=-1), 3)
    for name in ("lag", "count", "total", "total_sq"):
        np.testing.assert_array_equal(getattr(by_successes, name), getattr(by_rewards, name), err_msg=name)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("params", [{}, {"bandwidth": "rate"}, {"normalization": "algorithm1"}, {"bandwidth": 0.5}])
def test_blocks_of_prompts_change_no_value(params, weighted, masked, monkeypatch):
    groups, visits = a_step(masked=masked, weighted=weighted)
    baseline = make_baseline("kae", **params)
    whole = baseline.values(groups, visits, step=5)
    monkeypatch.setattr("kaestat.core.arrays.BLOCK_NUMBERS", 8)  # two prompts at a time
    seen = []
    over_prompts(lambda groups, visits: seen.append(groups.reward.shape) or (groups.reward,), groups, visits)
    assert seen == [(2, 3), (2, 3), (2, 3), (1, 3)]
    np.testing.assert_array_equal(baseline.values(groups, visits, step=5), whole)


def test_leading_axes_stay_and_one_row_serves_all_blocks(monkeypatch):
    monkeypatch.setattr("kaestat.core.arrays.BLOCK_NUMBERS", 8)
    groups, visits = a_step()
    groups = dataclasses.replace(groups, reward=RNG.random((2, 7, 3)))
    per_prompt, for_all = np.arange(7.0)[:, None], np.array([[[1.0]], [[2.0]]])
    seen = []

    def function(groups, visits, *others):
        seen.append(others[1:])
        return groups.reward, visits.total, others[0] + np.zeros_like(visits.total[:, :1]), groups.reward > 0.5

    reward, total, number, high = over_prompts(function, groups, visits, per_prompt, for_all, 10.0)
    np.testing.assert_array_equal(reward, groups.reward)
    np.testing.assert_array_equal(total, visits.total)
    np.testing.assert_array_equal(number, per_prompt)
    np.testing.assert_array_equal(high, groups.reward > 0.5)
    assert len(seen) == 4 and all(others[0] is for_all and others[1] == 10.0 for others in seen)


def test_small_step_is_one_block_and_not_copied():
    groups, visits = a_step()
    assert over_prompts(lambda *given: given, groups, visits, 3.0) == (groups, visits, 3.0)


def test_torch_tensors_come_back_as_torch_tensors(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("kaestat.core.arrays.BLOCK_NUMBERS", 8)
    groups, visits = a_step()
    sums = (visits.lag, visits.count, visits.total, visits.total_sq)
    given = Groups(torch.from_numpy(groups.reward)), Visits(*map(torch.tensor, sums))
    values = make_baseline("kae", bandwidth=10).values(*given, step=5)
    assert isinstance(values, torch.Tensor)
    np.testing.assert_allclose(
        values.numpy(), make_baseline("kae", bandwidth=10).values(groups, visits, step=5), rtol=1e-14
    )
