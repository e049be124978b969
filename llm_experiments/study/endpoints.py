"""What a learning curve comes to: accuracy over the whole run, at its end, and completions to an accuracy."""

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

ROUNDING = 1e-9  # an accuracy that is missed by less is reached


def on_grid(curves: pd.DataFrame, column: str, grid: np.ndarray) -> np.ndarray:
    """A column of each run's curve at given numbers of completions, shape (runs, len(grid)); linear between tests.

    curves: Columns ``seed, generated`` and the one asked for.
    grid: ndarray, shape (K,).
    """
    return np.array([np.interp(grid, run["generated"], run[column]) for _, run in curves.groupby("seed", sort=True)])


def area(curve: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Mean height of curves over the grid, shape (...,) for curves of shape (..., K)."""
    return np.trapezoid(curve, grid, axis=-1) / (grid[-1] - grid[0])


def rising(curve: np.ndarray) -> np.ndarray:
    """The monotone curve that is closest to a curve in squares, shape (K,)."""
    return np.asarray(isotonic_regression(curve).x)


def completions_to(target: float, curve: np.ndarray, grid: np.ndarray) -> float:
    """Completions at which a curve reaches an accuracy for good; NaN if it does not.

    The curve is made monotone first (least squares), so that a lucky test is not taken for the crossing.

    curve, grid: ndarray, shape (K,).
    """
    heights = rising(curve)
    above = np.flatnonzero(heights >= target - ROUNDING)
    if not len(above):
        return float("nan")
    first = int(above[0])
    if first == 0:
        return float(grid[0])
    low, high = heights[first - 1], heights[first]
    share = min((target - low) / (high - low), 1.0)
    return float(grid[first - 1] + share * (grid[first] - grid[first - 1]))
