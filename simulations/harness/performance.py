"""Performance measures with their Monte Carlo standard errors (Koehler et al., 2009; Morris et al., 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """A number with its Monte Carlo standard error.

    Attributes
    ----------
    measure : str
        What it measures, for example ``"mse"``; columns called ``method|measure`` are split into both.
    estimate, mcse : float
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
    n = len(column)
    mcse = float(np.std(column, ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    return _named(name, float(np.mean(column)), mcse, n)


def variance(name: str, column: np.ndarray) -> Estimate:
    """Variance over replicates, with a jackknife standard error (no normality)."""
    n = len(column)
    if n < 3:
        return _named(name, math.nan, math.nan, n)
    deviation2 = (column - column.mean()) ** 2
    total = deviation2.sum()
    # Variance without replicate i, in closed form.
    without = (total - deviation2 * n / (n - 1)) / (n - 2)
    return _named(name, float(total / (n - 1)), _jackknife_se(without), n)


def ratio_of_means(name: str, numerator: np.ndarray, denominator: np.ndarray) -> Estimate:
    """``mean(numerator) / mean(denominator)`` of paired replicates, with the delta method's standard error."""
    n, level = len(numerator), float(np.mean(denominator))
    ratio = float(np.mean(numerator)) / level
    mcse = float(np.std(numerator - ratio * denominator, ddof=1) / math.sqrt(n) / abs(level)) if n > 1 else math.nan
    return _named(name, ratio, mcse, n)


def reduction(name: str, ours: np.ndarray, theirs: np.ndarray) -> Estimate:
    """Percentage by which ``ours`` lies below ``theirs``, from paired replicates."""
    ratio = ratio_of_means(name, ours, theirs)
    return Estimate(ratio.measure, 100 * (1 - ratio.estimate), 100 * ratio.mcse, ratio.n, ratio.method)


def paired_difference(name: str, left: np.ndarray, right: np.ndarray) -> Estimate:
    """Mean of ``left - right``; the replicates share their random numbers."""
    return average(name, left - right)


def log_slope(name: str, x: np.ndarray, estimate: np.ndarray, mcse: np.ndarray, n: int) -> Estimate:
    """Slope of log(estimate) in log(x) by weighted least squares, the errors of cells being independent."""
    spread = mcse / estimate
    weight = 1 / spread**2
    lx, ly = np.log(x), np.log(estimate)
    center = np.sum(weight * lx) / np.sum(weight)
    sxx = np.sum(weight * (lx - center) ** 2)
    return _named(name, float(np.sum(weight * (lx - center) * ly) / sxx), float(1 / math.sqrt(sxx)), n)


def _jackknife_se(without: np.ndarray) -> float:
    n = len(without)
    return float(math.sqrt((n - 1) / n * np.sum((without - without.mean()) ** 2)))


def _named(name: str, estimate: float, mcse: float, n: int) -> Estimate:
    method, bar, measure = name.rpartition("|")
    return Estimate(measure, estimate, mcse, n, method if bar else "")
