"""Cutting a step into blocks of prompts changes no value, whatever has leading axes or one row for all prompts."""

import dataclasses

import numpy as np
import pytest

from kaestat import Groups, Visits, make_baseline
from kaestat.arrays import prompt_blocks

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
    assert len(list(prompt_blocks(groups, visits))) == 4
    np.testing.assert_array_equal(baseline.values(groups, visits, step=5), whole)


def test_leading_axes_stay_and_one_row_serves_all_blocks(monkeypatch):
    monkeypatch.setattr("kaestat.arrays.CACHED_CELLS", 8)
    groups, visits = a_step()
    groups = dataclasses.replace(groups, reward=RNG.random((2, 7, 3)))
    per_prompt, for_all = np.arange(7.0)[:, None], np.array([[[1.0]], [[2.0]]])
    parts = list(prompt_blocks(groups, visits, per_prompt, for_all, 10.0))
    np.testing.assert_array_equal(np.concatenate([part[0].reward for part in parts], axis=-2), groups.reward)
    np.testing.assert_array_equal(np.concatenate([part[1].total for part in parts]), visits.total)
    np.testing.assert_array_equal(np.concatenate([part[2] for part in parts]), per_prompt)
    assert all(part[3] is for_all and part[4] == 10.0 for part in parts)


def test_small_step_is_one_block_and_not_copied():
    groups, visits = a_step()
    ((same_groups, same_visits),) = prompt_blocks(groups, visits)
    assert same_groups is groups and same_visits is visits
