"""Performance measures with their Monte Carlo standard errors.

Every measure takes columns of one number per replicate, shape (R,), and returns an `Estimate`. Columns given to one
measure are paired: they come from the same replicates, and the error uses what they share. No error assumes normality.

References
----------
Morris, White and Crowther (2019), Using simulation studies to evaluate statistical methods, table 6.
Koehler, Brown and Haneuse (2009), On the assessment of Monte Carlo error in simulation-based statistical analyses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """A number with its Monte Carlo standard error.

    Attributes
    ----------
    measure : str
        What it measures, for example ``"mse"``; measures called ``"method|measure"`` are split into both.
    estimate, mcse : float
        The error is nan where the replicates are too few for one.
    n : int
        Replicates behind it.
    method : str
        Which method it belongs to, empty if none.
    """

    measure: str
    estimate: float
    mcse: float
    n: int
    method: str = ""


def average(name: str, column: np.ndarray) -> Estimate:
    """Mean over replicates."""
    return _named(name, float(np.mean(column)), _standard_error(column), len(column))


def bias(name: str, estimate: np.ndarray, truth: np.ndarray | float) -> Estimate:
    """Mean of ``estimate - truth``; the truth may differ between replicates."""
    return average(name, estimate - truth)


def relative_bias(name: str, estimate: np.ndarray, truth: np.ndarray | float) -> Estimate:
    """Bias in per cent of the mean truth."""
    ratio = ratio_of_means(name, estimate - truth, np.broadcast_to(truth, np.shape(estimate)))
    return Estimate(ratio.measure, 100 * ratio.estimate, 100 * ratio.mcse, ratio.n, ratio.method)


def mse(name: str, estimate: np.ndarray, truth: np.ndarray | float) -> Estimate:
    """Mean of ``(estimate - truth)^2``."""
    return average(name, (estimate - truth) ** 2)


def variance(name: str, column: np.ndarray) -> Estimate:
    """Variance over replicates, with a jackknife standard error."""
    n = len(column)
    if n < 3:
        return _named(name, math.nan, math.nan, n)
    return _named(name, float(np.var(column, ddof=1)), _jackknife_error(_variance_without(column)), n)


def empirical_se(name: str, column: np.ndarray) -> Estimate:
    """Standard deviation over replicates, with a jackknife standard error."""
    n = len(column)
    if n < 3:
        return _named(name, math.nan, math.nan, n)
    return _named(name, float(np.std(column, ddof=1)), _jackknife_error(np.sqrt(_variance_without(column))), n)


def relative_error(name: str, estimate: np.ndarray, standard_error: np.ndarray) -> Estimate:
    """Per cent by which the standard errors that a method reports exceed the true spread of its estimates.

    ``100 (sqrt(mean(standard_error^2)) / sd(estimate) - 1)``, with a jackknife standard error.

    Parameters
    ----------
    name : str
    estimate, standard_error : ndarray, shape (R,)
        What the method reported in each replicate.
    """
    n = len(estimate)
    if n < 3:
        return _named(name, math.nan, math.nan, n)
    reported = np.square(standard_error, dtype=float)
    whole = math.sqrt(reported.mean() / np.var(estimate, ddof=1))
    without = np.sqrt(_mean_without(reported) / _variance_without(estimate))
    return _named(name, 100 * (whole - 1), 100 * _jackknife_error(without), n)


def proportion(name: str, hits: np.ndarray) -> Estimate:
    """Share of replicates in which ``hits`` is true.

    The error is ``sqrt(p (1 - p) / n)``. Where no replicate or every one hits that would be 0, a certainty that nobody
    has; there ``p`` and ``n`` in it are Agresti and Coull's, with two hits and two misses added.
    """
    n, count = len(hits), int(np.count_nonzero(hits))
    p, size = (count / n, n) if 0 < count < n else ((count + 2) / (n + 4), n + 4)
    return _named(name, count / n, math.sqrt(p * (1 - p) / size), n)


def coverage(name: str, low: np.ndarray, high: np.ndarray, truth: np.ndarray | float) -> Estimate:
    """Share of intervals ``[low, high]`` that hold the truth."""
    return proportion(name, (low <= truth) & (truth <= high))


def power(name: str, low: np.ndarray, high: np.ndarray, null: float = 0.0) -> Estimate:
    """Share of intervals ``[low, high]`` that leave out ``null``: power, or under the null the size of the test."""
    return proportion(name, (null < low) | (high < null))


def ratio_of_means(name: str, numerator: np.ndarray, denominator: np.ndarray) -> Estimate:
    """``mean(numerator) / mean(denominator)`` of paired replicates, with the delta method's standard error."""
    level = float(np.mean(denominator))
    ratio = float(np.mean(numerator)) / level
    return _named(name, ratio, _standard_error(numerator - ratio * denominator) / abs(level), len(numerator))


def reduction(name: str, ours: np.ndarray, theirs: np.ndarray) -> Estimate:
    """Percentage by which the mean of ``ours`` lies below that of ``theirs``, from paired replicates."""
    ratio = ratio_of_means(name, ours, theirs)
    return Estimate(ratio.measure, 100 * (1 - ratio.estimate), 100 * ratio.mcse, ratio.n, ratio.method)


def paired_difference(name: str, left: np.ndarray, right: np.ndarray) -> Estimate:
    """Mean of ``left - right``; the replicates share their random numbers."""
    return average(name, left - right)


def correlation(name: str, left: np.ndarray, right: np.ndarray) -> Estimate:
    """Correlation r of paired columns over replicates, error ``(1 - r^2) / sqrt(R)``; nan if one is constant."""
    n = len(left)
    if n < 3 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return _named(name, math.nan, math.nan, n)
    r = float(np.corrcoef(left, right)[0, 1])
    return _named(name, r, (1 - r**2) / math.sqrt(n), n)


def function_of_means(name: str, function: Callable[..., np.ndarray], *columns: np.ndarray) -> Estimate:
    """Any smooth function of the columns' means, with a jackknife standard error.

    Parameters
    ----------
    name : str
    function : callable
        ``function(mean_1, mean_2, ...)``, elementwise in arrays.
    *columns : ndarray, shape (R,)
        Paired columns.

    Examples
    --------
    The excess of one MSE over a bound, relative to the excess of another:

    >>> import numpy as np
    >>> ours, theirs, bound = np.array([3.0, 4.0, 5.0]), np.array([6.0, 7.0, 5.0]), np.array([2.0, 2.0, 2.0])
    >>> function_of_means("excess", lambda a, b, c: (a - c) / (b - c), ours, theirs, bound).estimate
    0.5
    """
    n = len(columns[0])
    whole = float(function(*(float(np.mean(column)) for column in columns)))
    error = _jackknife_error(function(*(_mean_without(column) for column in columns))) if n > 1 else math.nan
    return _named(name, whole, error, n)


def log_slope(name: str, x: np.ndarray, estimate: np.ndarray, mcse: np.ndarray, n: int) -> Estimate:
    """Slope of log(estimate) in log(x) over cells whose errors are independent, by weighted least squares.

    Cells that share random numbers are not independent: for those, `paired_log_slope`.

    Parameters
    ----------
    name : str
    x, estimate, mcse : ndarray, shape (C,)
        One number per cell, positive; two or more different ``x``.
    n : int
        Replicates of each cell.

    Raises
    ------
    ValueError
        If a number is not positive, or all ``x`` are the same.
    """
    x, estimate, mcse = (_positive(name, values) for values in (x, estimate, mcse))
    slope, sxx = _weighted_slope(name, np.log(x), np.log(estimate), (estimate / mcse) ** 2)
    return _named(name, float(slope), 1 / math.sqrt(sxx), n)


def paired_log_slope(name: str, x: np.ndarray, columns: np.ndarray) -> Estimate:
    """Slope of log(mean of a column) in log(x) over cells that share random numbers: least squares and the jackknife.

    Parameters
    ----------
    name : str
    x : ndarray, shape (C,)
    columns : ndarray, shape (C, R)
        The cells' columns; replicate r of each used the same random numbers.

    Raises
    ------
    ValueError
        If an ``x`` or a mean is not positive, or all ``x`` are the same.
    """
    x, columns = _positive(name, x), np.asarray(columns, dtype=float)
    weight, n = np.ones(len(x)), columns.shape[-1]
    whole, _ = _weighted_slope(name, np.log(x), np.log(_positive(name, columns.mean(axis=-1))), weight)
    without = np.log(_positive(name, _mean_without(columns)))
    slopes, _ = _weighted_slope(name, np.log(x), without.T, weight)
    return _named(name, float(whole), _jackknife_error(slopes), n)


def _standard_error(column: np.ndarray) -> float:
    return float(np.std(column, ddof=1) / math.sqrt(len(column))) if len(column) > 1 else math.nan


def _mean_without(column: np.ndarray) -> np.ndarray:
    """Mean without each replicate in turn."""
    column = np.asarray(column, dtype=float)
    return (column.sum(axis=-1, keepdims=True) - column) / (column.shape[-1] - 1)


def _variance_without(column: np.ndarray) -> np.ndarray:
    """Variance without each replicate in turn."""
    n = len(column)
    deviation2 = (column - np.mean(column)) ** 2
    return (deviation2.sum() - deviation2 * n / (n - 1)) / (n - 2)


def _jackknife_error(without: np.ndarray) -> float:
    n = len(without)
    return float(math.sqrt((n - 1) / n * np.sum((without - np.mean(without)) ** 2)))


def _weighted_slope(name: str, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Weighted least-squares slope of y (..., C) in x (C,), and the weighted sum of squares of x."""
    share = weight / weight.sum()
    deviation = x - np.sum(share * x)
    sxx = float(np.sum(weight * deviation**2))
    if np.ptp(x) == 0:
        raise ValueError(f"{name}: a slope needs two different x, got {len(x)} equal ones.")
    return y @ (weight * deviation) / sxx, sxx


def _positive(name: str, values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"{name}: a log-log slope needs positive finite numbers, got {values.min()!r}.")
    return values


def _named(name: str, estimate: float, mcse: float, n: int) -> Estimate:
    method, bar, measure = name.rpartition("|")
    return Estimate(measure, estimate, mcse, n, method if bar else "")
