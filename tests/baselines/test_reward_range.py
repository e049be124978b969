"""Baselines whose parameters are meant for rewards in [0, 1], on rewards of another range."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, make_baseline
from kaestat.baselines.registry import METHODS
from kaestat.baselines.reward_range import RangedBaseline, on_range
from tests.helpers.cases import groups, visits

RANGED = [name for name, method in METHODS.items() if issubclass(method.baseline, RangedBaseline)]


@pytest.mark.parametrize("name", RANGED)
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 100.0), (-0.3, 0.1)])
def test_values_move_with_the_labels_of_the_rewards(name, low, high):
    past, now = [(9, [1, 0, 0]), (4, [1]), (3, [1, 1, 0])], [1, 0, 1]

    def label(rewards):
        return [low + (high - low) * z for z in rewards]

    plain = make_baseline(name).values(groups(now), visits(past), step=20)
    labelled = visits([(lag, label(rewards)) for lag, rewards in past])
    values = make_baseline(name, low=low, high=high).values(groups(label(now)), labelled, step=20)
    np.testing.assert_allclose(values, low + (high - low) * plain, rtol=1e-10, atol=1e-12)


def test_a_range_given_is_kept():
    given = make_baseline("spo", low=-1.0, high=3.0)
    assert on_range(given, 0.0, 5.0) == given
    assert on_range(make_baseline("spo"), -1.0, 1.0) == make_baseline("spo", low=-1.0, high=1.0)
    assert on_range(make_baseline("kae"), -1.0, 1.0) == make_baseline("kae")


@pytest.mark.parametrize("name", RANGED)
def test_an_empty_range_is_refused(name):
    with pytest.raises(ValueError, match=r"low must be less than high, got 1.0 and 1.0"):
        make_baseline(name, low=1.0, high=1.0)
    with pytest.raises((ValueError, TypeError), match="high"):
        make_baseline(name, high=np.inf)


def test_kalman_says_how_to_give_the_range_of_other_rewards(recwarn):
    AdvantageEstimator("kalman", low=-1, high=1).step(["a", "a"], [-1.0, 1.0], 0)
    assert not recwarn
    AdvantageEstimator("kalman").step(["a", "a"], [-1.0, 1.0], 0)
    assert [str(each.message).partition(", ")[2] for each in recwarn] == [
        "so every reward should lie in [0, 1]; give the range of others as low= and high=."
    ]


def test_spo_says_how_to_give_the_range_of_other_rewards():
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]; give the range of others as low= and high="):
        AdvantageEstimator("spo").step(["a", "a"], [-1.0, 1.0], 0)
    estimator = AdvantageEstimator("spo", scale="none", low=-1, high=1)
    assert estimator.step(["a", "a"], [-1.0, 1.0], 0).tolist() == [-1.0, 1.0]
    with pytest.raises(ValueError, match=r"must lie in \[-1, 1\]"):
        estimator.step(["a"], [1.1], 1)


OUTSIDE = {"bnpo": (-1.0, 1.5), "maxrl": (-1.0,), "spo": (-0.5, 1.5)}


@pytest.mark.parametrize(("name", "bad"), [(name, bad) for name, rewards in OUTSIDE.items() for bad in rewards])
def test_rewards_without_a_meaning_are_refused_and_nothing_is_recorded_unless_they_are_masked(name, bad):
    estimator = AdvantageEstimator(name)
    with pytest.raises(ValueError, match=name):
        estimator.step(["a", "a"], [bad, 1.0 - bad], 0)  # their mean is fine
    assert estimator.last_step == -1 and estimator.history is None
    masked = estimator.step(["a"] * 3, [1.0, 0.0, bad], 0, mask=[True, True, False])
    assert masked[0] > 0 > masked[1] and masked[2] == 0


def test_so_are_those_of_the_past():
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        make_baseline("spo").values(groups([1]), visits([(1, [2.0, -1.0])]), step=3)
