"""What curves say: mean accuracy over the budget, and completions to the best group design's accuracy."""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student

SHARES = (0.3, 0.5, 0.7, 1.0)  # of the budget, at which the best group design's accuracy is the target
PRIMARY = 0.5
LEVEL = 0.95


def area(curve: np.ndarray, checks: np.ndarray) -> np.ndarray:
    """Mean accuracy over the budget by the trapezoid rule, of curves (..., checks)."""
    return np.trapezoid(curve, checks, axis=-1) / (checks[-1] - checks[0])


def steps_to(curve: np.ndarray, checks: np.ndarray, target: float) -> float:
    """Steps until a curve first reaches the target, between checks by a line; inf if it never does."""
    reached = np.flatnonzero(curve >= target)
    if not len(reached):
        return float("inf")
    last = int(reached[0])
    if last == 0:
        return float(checks[0])
    low, high = curve[last - 1], curve[last]
    return float(checks[last - 1] + (checks[last] - checks[last - 1]) * (target - low) / (high - low))


def completions_ratio(curve: np.ndarray, reference: np.ndarray, checks: np.ndarray, share: float) -> float:
    """Completions to the reference's accuracy after a share of the budget, over that share; inf if never reached.

    The reference's own ratio is 1 where its curve rises; where it has been higher before, it is less.
    """
    at = share * checks[-1]
    return steps_to(curve, checks, float(np.interp(at, checks, reference))) / at


def over_bases(logs: np.ndarray) -> tuple[float, float, float]:
    """Geometric mean and Student's 95 % interval of ratios, from their logarithms on each base.

    If the target is out of reach on some bases, the ratio is the median over bases, which may be infinite, and the
    interval has no upper end.
    """
    logs = np.asarray(logs, dtype=float)
    if not np.isfinite(logs).all():
        return float(np.exp(np.median(logs))), float(np.exp(logs.min())), float("inf")
    mean, error = student_mean(logs)
    half = error * student.ppf((1 + LEVEL) / 2, len(logs) - 1)
    return float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half))


def student_mean(column: np.ndarray) -> tuple[float, float]:
    """Mean and standard error."""
    return float(np.mean(column)), float(np.std(column, ddof=1) / np.sqrt(len(column)))
