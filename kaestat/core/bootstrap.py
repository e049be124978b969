"""Bootstrap over clusters (prompts), and the intervals of means that come from it."""

from __future__ import annotations

import math

import numpy as np

from kaestat.core.checks import check_factors, check_seed, check_whole

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

    Of C clusters both intervals are as wide as Student's with C - 1 degrees of freedom: percentiles of a bootstrap,
    whose spread is that of divisor C, are moved away from the mean by ``sqrt(C / (C - 1)) t_(C-1) / z`` (Hesterberg,
    2015, on why percentile intervals of small samples are too short).

    Parameters
    ----------
    samples : ndarray, shape (C, M)
        One row per cluster.
    draws : ndarray, shape (n_boot, M)
        From `cluster_bootstrap`; the percentile interval of these, or Student's interval if there are none.

    Returns
    -------
    mean, se, low, high : ndarray, shape (M,)
        All but the mean are NaN with a single cluster.

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
    if n_clusters == 1:
        return mean, *np.full((3, len(mean)), np.nan)
    se = samples.std(axis=0, ddof=1) / np.sqrt(n_clusters)
    if len(draws) == 0:
        reach = _student_975(n_clusters) * se
        return mean, se, mean - reach, mean + reach
    lowest, highest = np.quantile(draws, [0.025, 0.975], axis=0)
    low, high = widened(mean, lowest, highest, n_clusters)
    return mean, se, low, high


def widened(center: np.ndarray, low: np.ndarray, high: np.ndarray, n_clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Ends of a 95 % percentile interval moved away from ``center`` as `mean_with_interval` says; NaN for one cluster.

    Parameters
    ----------
    center, low, high : ndarray, shape (M,)
    n_clusters : int
    """
    if n_clusters < 2:
        return np.full_like(center, np.nan), np.full_like(center, np.nan)
    factor = math.sqrt(n_clusters / (n_clusters - 1)) * _student_975(n_clusters) / NORMAL_975
    return center + factor * (low - center), center + factor * (high - center)


def _student_975(n_clusters: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(n_clusters - 1, 0.975))


def _columns(name: str, values: np.ndarray, *, most: float) -> np.ndarray:
    columns = check_factors(name, values, least=-most, most=most)
    if columns.ndim != 2 or not len(columns):
        raise ValueError(
            f"{name} must have a row for each cluster and a column for each quantity, got {columns.shape}."
        )
    return columns
