"""Intervals from replays without groups: what is missing has its known variance, what changes is added."""

import numpy as np
import pytest
from scipy.stats import t as student

from kaestat.logs.jackknife import jackknife_groups, jackknife_interval, replayed_interval

CLUSTERS, GROUPS = 60, 5


def made(rng, draws=1, clusters=CLUSTERS):
    """Contributions, their mean, its standard error, and the mean without each group."""
    contributions = rng.gamma(2.0, size=(clusters, draws))
    kept = jackknife_groups(clusters, seed=1, n_groups=GROUPS) != np.arange(GROUPS)[:, None]
    apart = kept @ contributions / kept.sum(axis=1, keepdims=True)
    return contributions.mean(axis=0), contributions.std(axis=0, ddof=1) / np.sqrt(clusters), apart


def test_where_nothing_else_changes_the_interval_is_students_of_the_contributions():
    mean, plain, apart = made(np.random.default_rng(0))
    se, low, high = replayed_interval(mean, apart, apart, plain, CLUSTERS)
    np.testing.assert_allclose(se, plain)
    np.testing.assert_allclose(high - mean, student.ppf(0.975, CLUSTERS - 1) * plain)
    np.testing.assert_allclose(mean - low, high - mean)


def test_what_changes_with_the_missing_contributions_multiplies_the_error():
    mean, plain, apart = made(np.random.default_rng(1))
    se, *_ = replayed_interval(mean, apart - 0.4 * (apart - 3.0), apart, plain, CLUSTERS)
    np.testing.assert_allclose(se, 0.6 * plain)


def test_by_hand():
    """Contributions that are all alike have no part in it: the rest is the jackknife's, with 3 degrees of freedom."""
    change = np.array([[2.0], [-1.0], [0.0], [0.0], [-1.0]])
    se, low, high = replayed_interval(np.zeros(1), 1 + change, np.ones((5, 1)), np.zeros(1), 50)
    np.testing.assert_allclose(se, np.sqrt(0.8 * 6))
    np.testing.assert_allclose([low[0], high[0]], [-student.ppf(0.975, 3) * se[0], student.ppf(0.975, 3) * se[0]])


def test_the_error_is_that_of_estimates_whose_groups_also_move_the_others():
    """``theta = mean + b X``, X an error that all share and that each group has a part in, made many times."""
    rng, draws, weight = np.random.default_rng(2), 4000, 0.7
    mean, plain, apart = made(rng, draws)
    parts = rng.normal(size=(GROUPS, draws)) / np.sqrt(CLUSTERS)  # X is their sum over the root of K; without one, less
    shared = (parts.sum(axis=0) - parts) * np.sqrt(GROUPS) / (GROUPS - 1)
    estimate, left_out = mean + weight * parts.sum(axis=0) / np.sqrt(GROUPS), apart + weight * shared
    se, low, high = replayed_interval(estimate, left_out, apart, plain, CLUSTERS)
    covered = ((low <= 2.0) & (2.0 <= high)).mean()
    assert np.mean(se**2) == pytest.approx(
        estimate.var(), rel=0.12
    )  # the slope's own error makes it larger, never less
    assert np.mean(se**2) > estimate.var() and 0.93 < covered < 0.985
    old, *_ = jackknife_interval(estimate, left_out)
    assert se.std() < 0.9 * old.std()


@pytest.mark.parametrize("clusters", [3, 5])
def test_where_each_cluster_is_a_group_it_is_the_jackknife(clusters):
    rng = np.random.default_rng(clusters)
    left_out, apart = rng.normal(size=(2, clusters, 4))
    found = replayed_interval(np.zeros(4), left_out, apart, np.ones(4), clusters)
    np.testing.assert_array_equal(found, jackknife_interval(np.zeros(4), left_out))
