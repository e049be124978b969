"""The bootstrap over clusters: what it draws, what it says of a mean, and what it refuses."""

import numpy as np
import pytest

from kaestat.core.bootstrap import cluster_bootstrap, effective_number, mean_with_interval, skewed_ends

SAMPLES = np.array([[0.0, 1.0], [1.0, 3.0], [1.0, 3.0], [0.0, 1.0]])


def test_draws_are_means_of_whole_clusters_and_the_same_for_the_same_seed():
    draws = cluster_bootstrap(SAMPLES, n_boot=500, seed=3)
    assert draws.shape == (500, 2)
    cluster_bootstrap(SAMPLES[:3], n_boot=40, seed=3)
    np.testing.assert_array_equal(draws, cluster_bootstrap(SAMPLES.tolist(), n_boot=500, seed=3))
    np.testing.assert_allclose(draws[:, 1], 1 + 2 * draws[:, 0], rtol=1e-15)  # columns share the draws
    assert set(draws[:, 0]) == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert abs(draws[:, 0].mean() - 0.5) < 4 * 0.25 / 500**0.5


def test_the_interval_is_of_the_draws_or_students_without_any():
    mean, se, low, high = mean_with_interval(SAMPLES, np.empty((0, 2)))
    np.testing.assert_allclose(se, SAMPLES.std(axis=0, ddof=1) / 2)
    np.testing.assert_allclose([low, high], [mean - 3.1824463 * se, mean + 3.1824463 * se], rtol=1e-6)
    draws = np.arange(82.0).reshape(41, 2)
    _, _, low, high = mean_with_interval(SAMPLES, draws)
    factor = (4 / 3) ** 0.5 * 3.1824463 / 1.959963985
    ends = [mean + factor * (draw - mean) for draw in (draws[1], draws[39])]
    np.testing.assert_allclose([low, high], ends, rtol=1e-6)
    assert np.isnan(mean_with_interval(SAMPLES[:1], draws)[1:]).all()


def test_the_end_on_the_side_of_the_long_tail_alone_is_moved_out():
    # Of 0, 0, 0, 1 the fourth moment over the squared second is 7/3; 1 + sqrt((7/3 - 1) / 4) = 1 + sqrt(1/3).
    columns = np.array([[0, 0, 0, 1.0], [1, 1, 1, 0.0], [-1, -1, 1, 1.0], [2, 2, 2, 2.0], [0, 0, 0, 1e150]]).T
    low, high = skewed_ends(np.zeros(5), -np.ones(5), np.ones(5), columns)
    far = 1 + 3**-0.5
    np.testing.assert_allclose([low, high], [[-1, -far, -1, -1, -1], [far, 1, 1, 1, far]], rtol=1e-12)


def test_as_many_contributions_count_as_equal_ones_would():
    columns = np.array([[1, 1, 1, 1.0], [5, 0, 0, 0.0], [3, -3, 0, 0.0], [0, 0, 0, 0.0], [1e150, 1e150, 0, 0]]).T
    np.testing.assert_allclose(effective_number(columns), [4, 1, 2, 4, 2])


@pytest.mark.parametrize(
    ("samples", "n_boot", "error", "message"),
    [
        (SAMPLES, -1, ValueError, "n_boot must be a whole number of at least 0"),
        (np.empty((0, 2)), 2, ValueError, "samples must have a row for each cluster"),
        (SAMPLES + np.nan, 2, ValueError, "samples must be from"),
        ([["a"]], 2, TypeError, "samples must be numbers"),
    ],
)
def test_samples_that_are_no_table_of_numbers_are_refused(samples, n_boot, error, message):
    with pytest.raises(error, match=message):
        cluster_bootstrap(samples, n_boot=n_boot, seed=0)
