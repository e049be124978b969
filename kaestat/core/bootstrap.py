"""Bootstrap over clusters (prompts), and the resulting confidence intervals of means.

A mean of skewed contributions goes with its standard error: where the few large ones are missing from a sample, both
are too small, and a symmetric interval misses on one side. Every interval here is therefore longer on that side
(`skewed_ends`).
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import stdtrit

from kaestat.core.checks import MAX_SEED, check_numbers, check_whole

NORMAL_975 = 1.959963984540054
ROUNDING = 1e-9  # of a skewness that is 0


def cluster_bootstrap(samples: np.ndarray, *, n_boot: int, seed: int) -> np.ndarray:
    """Means of bootstrap samples, (n_boot, M): the clusters of ``samples``, (C, M), drawn with replacement.

    Columns share the draws, so their differences are paired. A ValueError if ``n_boot`` is negative, a sample is not
    finite (or beyond 1e300), ``samples`` does not have two axes, or the seed is no whole number; a TypeError if a
    sample is not a number.
    """
    samples = _columns("samples", samples, most=1e300)
    n_boot = check_whole("n_boot", n_boot, least=0)
    seed = check_whole("seed", seed, least=0, most=MAX_SEED)
    sums = [times @ samples for times in _drawn(len(samples), n_boot, seed)]
    return np.concatenate([np.empty((0, samples.shape[1])), *sums]) / len(samples)


@lru_cache(maxsize=1)
def _drawn(n_clusters: int, n_boot: int, seed: int) -> list[np.ndarray]:
    """How often each sample has each cluster, in blocks of samples, (size, C); tables of one log share it."""
    rng = np.random.default_rng(seed)
    at_once = max(1, 4_000_000 // n_clusters)  # bounds memory
    blocks = []
    for start in range(0, n_boot, at_once):
        size = min(at_once, n_boot - start)
        drawn = rng.integers(n_clusters, size=(size, n_clusters)) + n_clusters * np.arange(size)[:, None]
        times = np.bincount(drawn.reshape(-1), minlength=size * n_clusters).reshape(size, n_clusters)
        blocks.append(times.astype(np.min_scalar_type(times.max())))
    return blocks


def mean_with_interval(samples: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean over clusters, its standard error, and the ends of a 95 % interval, shape (M,) each.

    ``samples`` has shape (C, M); ``draws``, of `cluster_bootstrap`, (n_boot, M). All but the mean are NaN with a single
    cluster. Without draws the interval is Student's. Both are as wide as Student's with C - 1 degrees of freedom: the
    percentiles of a bootstrap have a spread with divisor C, so they are moved away from the mean by ``sqrt(C / (C - 1))
    t_(C-1) / z`` (Hesterberg, 2015, on why percentile intervals of small samples are too short). `skewed_ends` then
    moves one end out. A ValueError or TypeError if an entry is not a finite number of at most 1e150 in size, or the
    arrays do not have two axes and equally many columns.
    """
    samples = _columns("samples", samples, most=1e150)
    draws = check_numbers("draws", draws, least=-1e150, most=1e150)
    if draws.ndim != 2 or draws.shape[1] != samples.shape[1]:
        raise ValueError(f"draws must have shape (n_boot, {samples.shape[1]}), got {draws.shape}.")
    n_clusters = len(samples)
    mean = samples.mean(axis=0)
    if n_clusters == 1:
        return mean, *np.full((3, len(mean)), np.nan)
    se = samples.std(axis=0, ddof=1) / np.sqrt(n_clusters)
    if len(draws) == 0:
        reach = stdtrit(n_clusters - 1, 0.975) * se
        return mean, se, *skewed_ends(mean, mean - reach, mean + reach, samples)
    lowest, highest = np.quantile(draws, [0.025, 0.975], axis=0)
    return mean, se, *widened(mean, lowest, highest, samples)


def widened(
    center: np.ndarray, low: np.ndarray, high: np.ndarray, contributions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of a 95 % percentile interval, (M,), moved away from ``center`` as in `mean_with_interval`.

    They are NaN for a single cluster.
    """
    n_clusters = len(contributions)
    if n_clusters < 2:
        return np.full_like(center, np.nan), np.full_like(center, np.nan)
    factor = math.sqrt(n_clusters / (n_clusters - 1)) * float(stdtrit(n_clusters - 1, 0.975)) / NORMAL_975
    return skewed_ends(center, center + factor * (low - center), center + factor * (high - center), contributions)


def skewed_ends(
    center: np.ndarray, low: np.ndarray, high: np.ndarray, contributions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of a mean's confidence interval, with the end on the side of the long tail moved out.

    The standard error s of C contributions with kurtosis k has a standard error too, ``s / 2 sqrt((k - 1) / C)``.
    The end on the side of the skew moves out as if s were larger by two of these, that is
    by the factor ``1 + sqrt((k - 1) / C)``. The other end stays.

    Of the mean of 40 contributions with a skewness of 3.8 (value MSE where nearly all rewards are 1), 95 % intervals
    cover .945 instead of .906 at 1.24 times the median length (the guide to reward logs has the table, with
    cases where this is not enough). A bootstrap-t and Hall's transformation (1992) cover .92 there.

    Parameters
    ----------
    center, low, high : ndarray, shape (M,)
    contributions : ndarray, shape (C, M)
        Contribution of each cluster to the estimate, up to scale and shift; its linear part if the estimate is no mean.

    References
    ----------
    Hall, P. (1992), On the removal of skewness by transformation.
    """
    deviation = contributions - contributions.mean(axis=0)
    largest = np.abs(deviation).max(axis=0)
    deviation = np.divide(deviation, largest, out=np.zeros_like(deviation), where=largest > 0)
    second, third, fourth = (np.mean(deviation**power, axis=0) for power in (2, 3, 4))
    kurtosis = np.divide(fourth, second**2, out=np.ones_like(second), where=second > 0)
    factor = 1 + np.sqrt(np.maximum(kurtosis - 1, 0) / len(contributions))
    below, above = (np.where(sign * third > ROUNDING * second**1.5, factor, 1.0) for sign in (-1, 1))
    return center + below * (low - center), center + above * (high - center)


def effective_number(contributions: np.ndarray) -> np.ndarray:
    """Number of equal contributions with the same information, ``(sum |x|)^2 / sum x^2``, shape (M,); at least 1.

    Parameters
    ----------
    contributions : ndarray, shape (C, M)

    References
    ----------
    Kish, L. (1965), Survey Sampling.
    """
    size = np.abs(contributions)
    largest = size.max(axis=0)
    size = np.divide(size, largest, out=np.ones_like(size), where=largest > 0)
    return np.asarray(size.sum(axis=0) ** 2 / (size**2).sum(axis=0))


def _columns(name: str, values: np.ndarray, *, most: float) -> np.ndarray:
    columns = check_numbers(name, values, least=-most, most=most)
    if columns.ndim != 2 or not len(columns):
        raise ValueError(
            f"{name} must have a row for each cluster and a column for each quantity, got {columns.shape}."
        )
    return columns
