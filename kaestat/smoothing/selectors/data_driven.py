"""The common part of selectors that learn the bandwidth from past rewards."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kaestat.core.arrays import Array, Visits, as_like, namespace
from kaestat.core.bootstrap import cluster_bootstrap
from kaestat.core.checks import SMALLEST as SMALLEST_NUMBER
from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.base import PATH_COLUMNS, BandwidthSelection, Selector
from kaestat.smoothing.selectors.smoothing import CausalSmoother

DEFAULT_BANDWIDTH = 10.0  # steps; the paper's experiments
ROUNDING = 1e-12  # relative to the mean squared reward: risks nearer than this are equal
GRID_SIZE = 31  # neighbours differ by a third over a run of a thousand steps, and risks by less than their errors
LARGEST_CANDIDATE = 1e50  # squared, times the squares of rewards that a log may hold, it does not overflow
SMALLEST = 1.5  # times the shortest gap: below 1, a kernel of bounded support sees no past at all


@dataclass(frozen=True)
class DataDriven(Selector):
    """A selector that minimises an estimated risk over a grid of bandwidths, pooled over prompts.

    A subclass defines the contribution of each prompt (`statistics`) and the risk path from the mean contribution
    (`risk`), so one bootstrap over prompts serves all subclasses. With weighted completions the risk is the mean of the
    weighted loss ``sum W (Z - b)^2``, divided by the mean weight. Among bandwidths of equal risk the largest is chosen:
    it has the smallest variance.

    During training each step uses the past of its own prompts. While none of them has two past visits,
    the bandwidth is 10 steps (or the end of the grid nearest to 10).

    Parameters
    ----------
    grid : sequence of float, optional
        Candidates in steps, increasing. None means the `default_grid` of the visits.
    """

    grid: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.grid is not None:
            object.__setattr__(self, "grid", check_grid(self.grid))

    @abstractmethod
    def statistics(self, smoother: CausalSmoother, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        """Contributions of the prompts that have one, shape (C, M)."""

    def risk(self, mean: np.ndarray, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        """Risk of each candidate, shape (..., B), from mean contributions, shape (..., M): by default the same."""
        return mean

    def bandwidth(self, mean: np.ndarray, kernel: Kernel, grid: np.ndarray, resolution: float) -> np.ndarray:
        """The chosen bandwidth, shape (...,); risks within ``resolution`` of the lowest count as equal."""
        return grid[largest_minimiser(self.risk(mean, kernel, grid), resolution)]

    def resolution(self, smoother: CausalSmoother) -> float:
        """The difference of risk that is only rounding, relative to the mean squared reward about the mean of all."""
        squares = smoother.mass * (smoother.mean**2 + smoother.scatter)
        return ROUNDING * float(np.sum(squares) / np.sum(smoother.mass))

    @property
    def pools_prompts(self) -> bool:
        return True

    def resolve(
        self, visits: Visits, current_count: Array, *, step: int | Array, kernel: Kernel
    ) -> list[tuple[Array | float, Array | float]]:
        leading = tuple(np.broadcast_shapes(visits.lag.shape, visits.count.shape)[:-2])
        if not leading:
            return [(self._current(CausalSmoother(visits), kernel), 1.0)]
        chosen = np.empty((*leading, 1, 1))
        for at in np.ndindex(leading):
            columns = {name: a if a is None else _broadcast(a, leading)[at] for name, a in vars(visits).items()}
            chosen[at] = self._current(CausalSmoother(Visits(**columns)), kernel)
        return [(as_like(chosen, visits.lag), 1.0)]

    def select(self, series: Visits, *, kernel: Kernel, seed: int = 0, n_boot: int = 200) -> BandwidthSelection:
        import pandas as pd

        smoother = CausalSmoother(series)
        if not comparable(smoother):
            raise ValueError(f"selector {self.name!r}: no prompt has two visits, so no bandwidth can be chosen.")
        grid, resolution = self._candidates(smoother), self.resolution(smoother)
        contributions = self.statistics(smoother, kernel, grid)
        mean = contributions.mean(axis=0)
        draws = cluster_bootstrap(contributions, n_boot=n_boot, seed=seed)
        risk, drawn = self.risk(mean, kernel, grid), self.risk(draws, kernel, grid)
        best = int(largest_minimiser(risk, resolution))
        with np.errstate(invalid="ignore"):  # the difference of two infinite risks is NaN
            difference = drawn - drawn[:, best : best + 1]
        columns = (grid, risk, spread_over_draws(drawn), spread_over_draws(difference))
        return BandwidthSelection(
            bandwidth=float(self.bandwidth(mean, kernel, grid, resolution)),
            se=float(spread_over_draws(self.bandwidth(draws, kernel, grid, resolution))),
            path=pd.DataFrame(dict(zip(PATH_COLUMNS, columns, strict=True))),
            selector=self.name,
        )

    def _current(self, smoother: CausalSmoother, kernel: Kernel) -> float:
        if not comparable(smoother):
            ends = (DEFAULT_BANDWIDTH,) if self.grid is None else self.grid
            return float(np.clip(DEFAULT_BANDWIDTH, ends[0], ends[-1]))
        grid = self._candidates(smoother)
        mean = self.statistics(smoother, kernel, grid).mean(axis=0)
        return float(self.bandwidth(mean, kernel, grid, self.resolution(smoother)))

    def _candidates(self, smoother: CausalSmoother) -> np.ndarray:
        return default_grid(smoother) if self.grid is None else np.asarray(self.grid)


def comparable(smoother: CausalSmoother) -> bool:
    """Whether any prompt has two visits."""
    return bool(smoother.has_past.any())


def scored_visits(smoother: CausalSmoother) -> np.ndarray:
    """Visits to score, shape (P, V): those with a past, and with two completions or more if any has.

    They are the same visits for all bandwidths, as in `kaestat.value_risk`: with two completions the reward variance
    is known.
    """
    several = smoother.has_past & (smoother.count > 1)
    return several if several.any() else smoother.has_past


def average_within_prompts(loss: np.ndarray, scored: np.ndarray) -> np.ndarray:
    """Mean loss per completion over the scored visits of each prompt that has any; (P, V) to (C,)."""
    n = scored.sum(axis=1)
    total = np.sum(np.where(scored, loss, 0.0), axis=1)
    return total[n > 0] / n[n > 0]


def largest_minimiser(risk: np.ndarray, resolution: float) -> np.ndarray:
    """Position of the last candidate whose risk is the lowest, up to ``resolution``; (..., B) to (...,)."""
    near = risk <= np.min(risk, axis=-1, keepdims=True) + resolution
    return risk.shape[-1] - 1 - np.argmax(near[..., ::-1], axis=-1)


def spread_over_draws(draws: np.ndarray) -> np.ndarray:
    """Standard deviation over bootstrap draws (the first axis); NaN with fewer than two or an infinite risk."""
    if len(draws) < 2:
        return np.full(draws.shape[1:], np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.std(draws, axis=0, ddof=1)


def _broadcast(array: Array, leading: tuple[int, ...]) -> Array:
    return namespace(array).broadcast_to(array, (*leading, *array.shape[-2:]))


def default_grid(smoother: CausalSmoother, spans: float = 1.0) -> np.ndarray:
    """31 bandwidths in geometric progression, from 1.5 times the shortest gap to the span; fewer for a short span.

    The shortest gap is between two consecutive visits of a prompt. The span is the time from the first to the last
    visit of any prompt plus that gap. The largest is ``spans`` times the span.
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
