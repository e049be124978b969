"""Advantage scalings against the slow references, and weights that a scaling would cancel."""

import math
from functools import partial
from statistics import fmean, variance

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, Groups
from kaestat.baselines import Baseline, BatchMean
from kaestat.baselines.registry import METHODS
from kaestat.estimator.scaling import (
    SCALINGS,
    cancels_weights,
    divide_by_group_std,
    make_scaling,
    recentres,
    rescale_informative,
    whiten_over_batch,
)
from tests.helpers.cases import groups
from tests.helpers.estimators import PARAMETERS
from tests.helpers.tensors import as_torch

ROWS = st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=1, max_size=5), min_size=1, max_size=4)


def unpadded(array, rows):
    return [array[p, : len(row)].tolist() for p, row in enumerate(rows)]


def flat(rows):
    return [value for row in rows for value in row]


def whitened(advantages):
    """REINFORCE++: over every completion of the step, variance with ddof 1 and 1e-8 added."""
    flat = [a for row in advantages for a in row]
    if len(flat) < 2:
        return advantages
    mean, scale = fmean(flat), math.sqrt(variance(flat) + 1e-8)
    return [[(a - mean) / scale for a in row] for row in advantages]


def over_group_std(advantages, rewards, epsilon=1e-6):
    """GRPO: each group over its standard deviation (ddof 1) plus epsilon; groups of equal rewards as they are."""
    return [
        [a / (math.sqrt(variance(r)) + epsilon) for a in row] if len(set(r)) > 1 else row
        for row, r in zip(advantages, rewards, strict=True)
    ]


def over_reward_std(advantages, rewards, epsilon=1e-4):
    """TRL's scale_rewards="batch": over the standard deviation (ddof 1) of all rewards plus epsilon."""
    flat = [z for row in rewards for z in row]
    if len(set(flat)) < 2:
        return advantages
    return [[a / (math.sqrt(variance(flat)) + epsilon) for a in row] for row in advantages]


def gpg_rescaled(advantages, rewards):
    """GPG: times B / (B - M), M the completions in groups whose rewards are all equal."""
    mixed = sum(len(row) for row in rewards if max(row) > min(row))
    total = sum(len(row) for row in rewards)
    return [[a * total / mixed if mixed else a for a in row] for row in advantages]


@given(rows=ROWS)
def test_scalings_are_those_of_the_slow_references(rows):
    packed = groups(*rows)
    centred = packed.reward - 0.25
    advantages = [[z - 0.25 for z in row] for row in rows]

    for fast, slow in (
        (divide_by_group_std(centred, packed), over_group_std(advantages, rows)),
        (make_scaling("trl_group")(centred, packed), over_group_std(advantages, rows, 1e-4)),
        (make_scaling("group_std(epsilon=0.5)")(centred, packed), over_group_std(advantages, rows, 0.5)),
        (make_scaling("trl_batch")(centred, packed), over_reward_std(advantages, rows)),
        (make_scaling("trl_batch( epsilon = 2 )")(centred, packed), over_reward_std(advantages, rows, 2.0)),
        (whiten_over_batch(centred, packed), whitened(advantages)),
        (rescale_informative(centred, packed), gpg_rescaled(advantages, rows)),
    ):
        np.testing.assert_allclose(flat(unpadded(fast, rows)), flat(slow), rtol=1e-9, atol=1e-9)
    for name, scaling in SCALINGS.items():
        tensors = as_torch(packed)
        found = scaling(tensors.reward - 0.25, tensors)
        np.testing.assert_allclose(np.asarray(found), scaling(centred, packed), rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("scale", SCALINGS)
def test_scalings_take_leading_axes(scale):
    reward, scaling = np.random.default_rng(0).random((3, 4, 5)), SCALINGS[scale]
    expected = np.stack([scaling(each - 0.5, Groups(reward=each)) for each in reward])
    np.testing.assert_allclose(scaling(reward - 0.5, Groups(reward=reward)), expected)


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ("std", "unknown 'std'; choose one of none, group_std"),
        ("none(epsilon=1)", "adds no epsilon"),
        ("group_std(epsilon=small)", "must be a number"),
        ("trl_batch(epsilon=nan)", "epsilon must be"),
    ],
)
def test_unreadable_scales_say_what_to_write(scale, words):
    with pytest.raises(ValueError) as error:
        AdvantageEstimator("grpo", scale=scale)
    assert words in str(error.value)


GROUP_SCALES = ("group_std", "trl_group", "group_std(epsilon=0.5)")
DEAD = ([[1.0, 0, 1, 0]], [[1.0] * 4]), ([[1.0, 0, 1, 0], [0.0] * 4], [[1.0] * 4, [1.0, 0, 0, 0]])


class Own(Baseline):
    """A user's history, which says nothing of its values."""

    def values(self, groups, visits, *, step, carry=None):
        return groups.reward * 0 + 0.5


@pytest.mark.parametrize("scale", [*SCALINGS, GROUP_SCALES[-1]])
@pytest.mark.parametrize("name", [*METHODS, Own()], ids=str)
def test_a_scale_leaves_advantages_bounded_or_is_refused(name, scale):
    make = partial(AdvantageEstimator, name, scale=scale, **PARAMETERS.get(name, {}) if isinstance(name, str) else {})
    within = isinstance(name, str) and METHODS[name].baseline.within_group
    if scale in GROUP_SCALES and not within:
        with pytest.raises(ValueError, match=r"^scale: '.*Take 'batch_std' or 'none'"):
            make()
        return
    for steps in DEAD:  # a history of mixed rewards, then groups and a step of equal ones
        for weights in (np.ones(8), np.array([0.0, 0, 0, 1, 1, 0, 0, 0])):  # of 0: the others may have no mean
            estimator = make()
            for step, rewards in enumerate(steps):
                ids, flat = np.repeat(range(len(rewards)), 4), np.ravel(rewards)
                given = weights[: len(flat)] if estimator.baseline.takes_weights and name != "reinforce++" else None
                assert np.abs(estimator.step(ids, flat, step, weights=given)).max() <= len(flat)


def test_weights_that_a_scale_would_cancel_are_refused():
    with pytest.raises(ValueError, match="set scale='none'"):
        AdvantageEstimator("reinforce++", scale="batch_std").step(["a", "b"], [1.0, 0.0], 0, weights=[1.0, 2.0])
    assert not cancels_weights(BatchMean(without_own=True), "batch_std")
    assert cancels_weights(BatchMean(), "batch_std(epsilon=0.1)") and not cancels_weights(BatchMean(), "trl_batch")
    assert not recentres("deviation")
