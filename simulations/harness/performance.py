"""Performance measures with their Monte Carlo standard errors.

Every measure takes columns of one number per replicate, shape (R,), and returns an `Estimate`. Columns given to one
measure are paired: they come from the same replicates, and the error uses what they share. No error assumes normality.

References
----------
Morris, White and Crowther (2019), Using simulation studies to evaluate statistical methods, table 6.
Koehler, Brown and Haneuse (2009), On the assessment of Monte Carlo error in simulation-based statistical analyses.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Estimate:
    """A number with its Monte Carlo standard error.

    measure: What it measures, for example ``"mse"``; measures called ``"method|measure"`` are split into both.
    estimate, mcse: The error is nan where the replicates are too few for one.
    n: Replicates behind it.
    method: Which method it belongs to, empty if none.
    """

    measure: str
    estimate: float
    mcse: float
    n: int
    method: str = ""


def average(name: str, column: np.ndarray) -> Estimate:
    """Mean over replicates."""
    return _named(name, float(np.mean(column)), _standard_error(column), len(column))


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


def proportion(name: str, hits: np.ndarray) -> Estimate:
    """Share of replicates in which ``hits`` is true.

    The error is ``sqrt(p (1 - p) / n)``. Where no replicate or every one hits that would be 0, a certainty that nobody
    has; there ``p`` and ``n`` in it are Agresti and Coull's, with two hits and two misses added.
    """
    n, count = len(hits), int(np.count_nonzero(hits))
    p, size = (count / n, n) if 0 < count < n else ((count + 2) / (n + 4), n + 4)
    return _named(name, count / n, math.sqrt(p * (1 - p) / size), n)


def pooled_share(rows: pd.DataFrame) -> tuple[float, float, int]:
    """Share of hits over several `proportion` rows of a summary, its binomial standard error, and the tries."""
    tries = int(rows["n"].sum())
    share = float((rows["estimate"] * rows["n"]).sum() / tries)
    return share, math.sqrt(share * (1 - share) / tries), tries


def ratio_of_means(name: str, numerator: np.ndarray, denominator: np.ndarray) -> Estimate:
    """``mean(numerator) / mean(denominator)`` of paired replicates, with the delta method's standard error."""
    level = float(np.mean(denominator))
    ratio = float(np.mean(numerator)) / level
    return _named(name, ratio, _standard_error(numerator - ratio * denominator) / abs(level), len(numerator))


def reduction(name: str, ours: np.ndarray, theirs: np.ndarray) -> Estimate:
    """Percentage by which the mean of ``ours`` lies below that of ``theirs``, from paired replicates."""
    ratio = ratio_of_means(name, ours, theirs)
    return Estimate(ratio.measure, 100 * (1 - ratio.estimate), 100 * ratio.mcse, ratio.n, ratio.method)


def correlation(name: str, left: np.ndarray, right: np.ndarray) -> Estimate:
    """Correlation r of paired columns over replicates, error ``(1 - r^2) / sqrt(R)``; nan if one is constant."""
    n = len(left)
    if n < 3 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return _named(name, math.nan, math.nan, n)
    r = float(np.corrcoef(left, right)[0, 1])
    return _named(name, r, (1 - r**2) / math.sqrt(n), n)


def _standard_error(column: np.ndarray) -> float:
    return float(np.std(column, ddof=1) / math.sqrt(len(column))) if len(column) > 1 else math.nan


def _variance_without(column: np.ndarray) -> np.ndarray:
    """Variance without each replicate in turn."""
    n = len(column)
    deviation2 = (column - np.mean(column)) ** 2
    return (deviation2.sum() - deviation2 * n / (n - 1)) / (n - 2)


def _jackknife_error(without: np.ndarray) -> float:
    n = len(without)
    return float(math.sqrt((n - 1) / n * np.sum((without - np.mean(without)) ** 2)))


def _named(name: str, estimate: float, mcse: float, n: int) -> Estimate:
    method, bar, measure = name.rpartition("|")
    return Estimate(measure, estimate, mcse, n, method if bar else "")
