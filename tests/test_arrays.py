"""Cutting a step into blocks of prompts changes no value, whatever has leading axes or one row for all prompts."""

import dataclasses

import numpy as np
import pytest

from kaestat import Groups, Visits, make_baseline
from kaestat.arrays import over_prompts

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


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("params", [{}, {"bandwidth": "rate"}, {"normalization": "algorithm1"}, {"bandwidth": 0.5}])
def test_blocks_of_prompts_change_no_value(params, weighted, masked, monkeypatch):
    groups, visits = a_step(masked=masked, weighted=weighted)
    baseline = make_baseline("kae", **params)
    whole = baseline.values(groups, visits, step=5)
    monkeypatch.setattr("kaestat.arrays.CACHED_CELLS", 8)  # two prompts at a time
    seen = []
    over_prompts(lambda groups, visits: seen.append(groups.reward.shape) or (groups.reward,), groups, visits)
    assert seen == [(2, 3), (2, 3), (2, 3), (1, 3)]
    np.testing.assert_array_equal(baseline.values(groups, visits, step=5), whole)


def test_leading_axes_stay_and_one_row_serves_all_blocks(monkeypatch):
    monkeypatch.setattr("kaestat.arrays.CACHED_CELLS", 8)
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
    monkeypatch.setattr("kaestat.arrays.CACHED_CELLS", 8)
    groups, visits = a_step()
    sums = (visits.lag, visits.count, visits.total, visits.total_sq)
    given = Groups(torch.from_numpy(groups.reward)), Visits(*map(torch.tensor, sums))
    values = make_baseline("kae").values(*given, step=5)
    assert isinstance(values, torch.Tensor)
    np.testing.assert_allclose(values.numpy(), make_baseline("kae").values(groups, visits, step=5), rtol=1e-14)
