"""Delete-a-group jackknife: standard errors of estimates that are made again without one group of clusters."""

from __future__ import annotations

import numpy as np

from kaestat.core.checks import LARGEST_FACTOR, check_factors, check_seed, check_whole

LARGEST_SQUARE = LARGEST_FACTOR**2 * 1e3  # of estimates that are mean squares of rewards, and some times that
GROUPS = 10  # each costs another replay of the rest


def jackknife_groups(n_clusters: int, *, seed: int, n_groups: int = GROUPS) -> np.ndarray:
    """A group for each cluster (prompt), at random, of sizes that differ by one at most.

    Parameters
    ----------
    n_clusters : int
    seed : int
    n_groups : int
        With fewer clusters every cluster is a group of its own.

    Returns
    -------
    ndarray of int, shape (n_clusters,)
    """
    n_clusters, n_groups = check_whole("n_clusters", n_clusters), check_whole("n_groups", n_groups)
    return check_seed(seed).permutation(n_clusters) % min(n_groups, n_clusters)


def jackknife_interval(
    estimate: np.ndarray | float, left_out: np.ndarray, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standard error and interval of an estimate, from the same estimate without each group.

    ::

        se^2 = (K - 1) / K  sum_k (theta_(k) - theta_(.))^2        interval: theta -+ t_(K-1) se

    Where the estimate is made from all clusters together, clusters are not independent contributions, and neither the
    spread over them nor a bootstrap of them says how far the estimate is off; made *again* without a group, it does.

    Parameters
    ----------
    estimate : float or array, shape (M,)
    left_out : array, shape (K, M)
        The estimates without group k.
    level : float

    Returns
    -------
    se, low, high : ndarray, shape (M,)
        NaN with a single group, or where an estimate is none.

    References
    ----------
    Kott, P. S. (2001), The delete-a-group jackknife.

    Examples
    --------
    The mean of 1, 2, 3 and 6, each a group of its own, has the standard error sqrt(14 / 3 / 4):

    >>> se, _, _ = jackknife_interval(3.0, [[11 / 3], [10 / 3], [3.0], [2.0]])
    >>> se.round(4)
    array([1.0801])
    """
    from scipy.special import stdtrit

    limits = -LARGEST_SQUARE, LARGEST_SQUARE
    left_out = check_factors("left_out", left_out, least=limits[0], most=limits[1], ndim=2, finite=False)
    estimate = check_factors("estimate", estimate, least=limits[0], most=limits[1], finite=False)
    estimate = np.broadcast_to(estimate, left_out.shape[1:])
    n_groups = len(left_out)
    if n_groups < 2:
        nothing = np.full(estimate.shape, np.nan)
        return nothing, nothing.copy(), nothing.copy()
    deviation = left_out - left_out.mean(axis=0)
    se = np.sqrt((n_groups - 1) / n_groups * np.sum(deviation**2, axis=0))
    reach = float(stdtrit(n_groups - 1, (1 + level) / 2)) * se
    return se, estimate - reach, estimate + reach
