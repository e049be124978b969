"""Bootstrap over clusters (prompts), and the intervals of means that come from it."""

from __future__ import annotations

import numpy as np

from kaestat.checks import check_factors, check_seed, check_whole

NORMAL_975 = 1.959963984540054


def cluster_bootstrap(samples: np.ndarray, *, n_boot: int, seed: int) -> np.ndarray:
    """Means over clusters drawn with replacement.

    Parameters
    ----------
    samples : ndarray, shape (C, M)
        One row per cluster (prompt); columns share the draws, so their differences are paired.
    n_boot : int
        Number of draws.
    seed : int
        Seed of the generator.

    Returns
    -------
    ndarray, shape (n_boot, M)

    Raises
    ------
    ValueError
        If ``n_boot`` is negative.
        Or a sample is not finite (or beyond 1e300), or ``samples`` has not two axes.
    TypeError
        If ``seed`` is no seed, or a sample no number.
    """
    samples = _columns("samples", samples, most=1e300)
    n_boot = check_whole("n_boot", n_boot, least=0)
    n_clusters = len(samples)
    rng = check_seed(seed)
    means = np.empty((n_boot, samples.shape[1]))
    draws_at_once = max(1, 4_000_000 // n_clusters)
    for start in range(0, n_boot, draws_at_once):  # blocks of draws, to bound memory
        size = min(draws_at_once, n_boot - start)
        drawn = rng.integers(n_clusters, size=(size, n_clusters)) + n_clusters * np.arange(size)[:, None]
        times = np.bincount(drawn.reshape(-1), minlength=size * n_clusters).reshape(size, n_clusters)
        means[start : start + size] = times @ samples / n_clusters
    return means


def mean_with_interval(samples: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean over clusters, its standard error, and a 95 % interval.

    Parameters
    ----------
    samples : ndarray, shape (C, M)
        One row per cluster.
    draws : ndarray, shape (n_boot, M)
        From `cluster_bootstrap`; the percentile interval of these, or the normal interval if there are none.

    Returns
    -------
    mean, se, low, high : ndarray, shape (M,)
        ``se`` is NaN with a single cluster.

    Raises
    ------
    ValueError, TypeError
        If a number is none, not finite, or beyond 1e150 in size; or if there are not two axes and as many columns.
    """
    samples = _columns("samples", samples, most=1e150)
    draws = check_factors("draws", draws, least=-1e150, most=1e150)
    if draws.ndim != 2 or draws.shape[1] != samples.shape[1]:
        raise ValueError(f"draws must have shape (n_boot, {samples.shape[1]}), got {draws.shape}.")
    n_clusters = len(samples)
    mean = samples.mean(axis=0)
    se = samples.std(axis=0, ddof=1) / np.sqrt(n_clusters) if n_clusters > 1 else np.full_like(mean, np.nan)
    if len(draws) == 0:
        return mean, se, mean - NORMAL_975 * se, mean + NORMAL_975 * se
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    return mean, se, low, high


def _columns(name: str, values: np.ndarray, *, most: float) -> np.ndarray:
    columns = check_factors(name, values, least=-most, most=most)
    if columns.ndim != 2 or not len(columns):
        raise ValueError(
            f"{name} must have a row for each cluster and a column for each quantity, got {columns.shape}."
        )
    return columns
