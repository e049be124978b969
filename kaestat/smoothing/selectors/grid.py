"""The candidate bandwidths of the data-driven selectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kaestat.core.checks import SMALLEST as SMALLEST_NUMBER
from kaestat.smoothing.selectors.smoothing import CausalSmoother

GRID_SIZE = 31  # neighbours differ by a third over a run of a thousand steps, and risks by less than their errors
LARGEST_CANDIDATE = 1e50  # squared, times the squares of rewards that a log may hold, it does not overflow
SMALLEST = 1.5  # times the shortest gap: below 1, a kernel of bounded support sees no past at all


def default_grid(smoother: CausalSmoother, spans: float = 1.0) -> np.ndarray:
    """31 bandwidths in geometric progression, from 1.5 times the shortest gap to the span; fewer for a short span.

    The shortest gap is between two consecutive visits of a prompt (1 if prompts are visited at every step, or visits
    are the time axis). The span is the time from the first to the last visit of any prompt plus that gap, i.e. the
    number of steps. So the grid scales with the time axis. The largest is ``spans`` times the span.
    """
    gap = (smoother.time - smoother.previous(smoother.time))[smoother.has_past].min()
    times = smoother.time[smoother.present]
    lowest = SMALLEST * gap
    return np.unique(np.geomspace(lowest, max(spans * (times.max() - times.min() + gap), lowest), GRID_SIZE))


def check_grid(grid: Sequence[float] | Any) -> tuple[float, ...]:
    """The grid as a tuple of floats.

    A ValueError unless it is non-empty, positive, at most 1e50 and strictly increasing; a TypeError unless it has
    numbers.
    """
    try:
        candidates = np.asarray(grid, dtype=float)
    except (TypeError, ValueError, OverflowError):
        candidates = np.zeros(())
    if candidates.ndim != 1 or isinstance(grid, str):
        raise TypeError(f"grid must be a sequence of bandwidths (numbers), got {grid!r}.")
    if len(candidates) == 0:
        raise ValueError("grid is empty: give at least one bandwidth, or None for the default.")
    usable = (candidates >= SMALLEST_NUMBER) & (candidates <= LARGEST_CANDIDATE)
    if not usable.all():
        bad = candidates[~usable][0]
        raise ValueError(f"grid: bandwidths must be positive and at most {LARGEST_CANDIDATE:g}, got {bad:g}.")
    if not (np.diff(candidates) > 0).all():
        raise ValueError("grid: bandwidths must be strictly increasing; sort them and drop repetitions.")
    return tuple(candidates.tolist())
