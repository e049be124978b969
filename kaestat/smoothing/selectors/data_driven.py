"""The common part of selectors that learn the bandwidth from past rewards."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import array_api_compat
import numpy as np

from kaestat.core.arrays import Array, Visits, as_like
from kaestat.core.bootstrap import cluster_bootstrap
from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.base import PATH_COLUMNS, BandwidthSelection, Selector
from kaestat.smoothing.selectors.grid import check_grid, default_grid
from kaestat.smoothing.selectors.smoothing import CausalSmoother

DEFAULT_BANDWIDTH = 10.0  # steps; the paper's experiments
ROUNDING = 1e-12  # relative to the mean squared reward: risks nearer than this are equal


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
        """The difference of risk that is only rounding."""
        return ROUNDING * mean_square(smoother)

    @property
    def pools_prompts(self) -> bool:
        return True

    def resolve(
        self, visits: Visits, current_count: Array, *, step: int | Array, kernel: Kernel
    ) -> list[tuple[Array | float, Array | float]]:
        past, leading = smoothers(visits)
        chosen = [self._current(smoother, kernel) for smoother in past]
        return [(per_index(chosen, leading, visits), 1.0)]

    def select(self, series: Visits, *, kernel: Kernel, seed: int = 0, n_boot: int = 200) -> BandwidthSelection:
        smoother = smoothers(series)[0][0]
        if not comparable(smoother):
            raise ValueError(f"selector {self.name!r}: no prompt has two visits, so no bandwidth can be chosen.")
        grid = self._candidates(smoother)
        contributions = self.statistics(smoother, kernel, grid)
        resolution = self.resolution(smoother)
        import pandas as pd

        mean = contributions.mean(axis=0)
        risk = self.risk(mean, kernel, grid)
        bandwidth = float(self.bandwidth(mean, kernel, grid, resolution))
        draws = cluster_bootstrap(contributions, n_boot=n_boot, seed=seed)
        drawn = self.risk(draws, kernel, grid)
        best = int(largest_minimiser(risk, resolution))
        with np.errstate(invalid="ignore"):  # the difference of two infinite risks is NaN
            difference = drawn - drawn[:, best : best + 1]
        columns = (grid, risk, spread_over_draws(drawn), spread_over_draws(difference))
        path = pd.DataFrame(dict(zip(PATH_COLUMNS, columns, strict=True)))
        se = float(spread_over_draws(self.bandwidth(draws, kernel, grid, resolution)))
        return BandwidthSelection(bandwidth=bandwidth, se=se, path=path, selector=self.name)

    def _current(self, smoother: CausalSmoother, kernel: Kernel) -> float:
        if not comparable(smoother):
            return self._fallback()
        grid = self._candidates(smoother)
        mean = self.statistics(smoother, kernel, grid).mean(axis=0)
        return float(self.bandwidth(mean, kernel, grid, self.resolution(smoother)))

    def _candidates(self, smoother: CausalSmoother) -> np.ndarray:
        return default_grid(smoother) if self.grid is None else np.asarray(self.grid)

    def _fallback(self) -> float:
        if self.grid is None:
            return DEFAULT_BANDWIDTH
        return min(max(DEFAULT_BANDWIDTH, self.grid[0]), self.grid[-1])


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


def mean_square(smoother: CausalSmoother) -> float:
    """Mean squared reward of all completions (about their common mean: `select` and `resolve` centre rewards)."""
    return float(np.sum(smoother.mass * (smoother.mean**2 + smoother.scatter)) / np.sum(smoother.mass))


def largest_minimiser(risk: np.ndarray, resolution: float) -> np.ndarray:
    """Position of the last candidate whose risk is the lowest, up to ``resolution``; (..., B) to (...,)."""
    lowest = np.min(risk, axis=-1, keepdims=True)
    near = risk <= lowest + resolution
    return risk.shape[-1] - 1 - np.argmax(near[..., ::-1], axis=-1)


def smoothers(visits: Visits) -> tuple[list[CausalSmoother], tuple[int, ...]]:
    """A smoother for each leading index, and the shape of the leading axes."""
    sums: tuple[Array, ...] = (visits.lag, visits.count, visits.mass, visits.carried, visits.carried_sq)
    if visits.weight_sq is not None:
        sums += (visits.mass_sq,)
    columns = np.broadcast_arrays(*map(_to_numpy, sums))
    leading = columns[0].shape[:-2]
    stacked = [column.reshape(math.prod(leading), *column.shape[-2:]) for column in columns]
    return [_centred_smoother(*parts) for parts in zip(*stacked, strict=True)], leading


def _centred_smoother(
    lag: np.ndarray,
    count: np.ndarray,
    mass: np.ndarray,
    carried: np.ndarray,
    carried_sq: np.ndarray,
    *squared: np.ndarray,
) -> CausalSmoother:
    """The smoother of rewards about their mean, without prompts and columns that are padding throughout.

    A shift of the rewards changes no choice; with centring this also holds in floating point.
    """
    kept = np.ix_((mass > 0).any(axis=1), (mass > 0).any(axis=0))
    lag, count, mass, carried, carried_sq = (column[kept] for column in (lag, count, mass, carried, carried_sq))
    center = carried.sum() / mass.sum() if mass.size else 0.0
    of_squares = {"weight_sq": squared[0][kept]} if squared else {}
    return CausalSmoother(
        Visits(
            lag=lag,
            count=count,
            total=carried,
            total_sq=carried_sq,
            weight=mass,
            weighted_total=carried - center * mass,
            weighted_total_sq=carried_sq - center * (2 * carried - center * mass),
            **of_squares,
        )
    )


def _to_numpy(column: Array) -> np.ndarray:
    if array_api_compat.is_torch_array(column):
        column = column.detach().cpu().numpy()
    return np.asarray(column, dtype=float)


def spread_over_draws(draws: np.ndarray) -> np.ndarray:
    """Standard deviation over bootstrap draws (the first axis); NaN with fewer than two or an infinite risk."""
    if len(draws) < 2:
        return np.full(draws.shape[1:], np.nan)
    largest = np.max(np.abs(draws), axis=0)
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)  # whose squares do not overflow
    with np.errstate(invalid="ignore"):
        return np.std(draws / unit, axis=0, ddof=1) * unit


def per_index(values: Sequence[float] | np.ndarray, leading: tuple[int, ...], visits: Visits) -> Array | float:
    """One number per leading index, broadcastable to (..., P, 1) in the visits' kind; a float if there is only one."""
    if not leading:
        return float(values[0])
    return as_like(np.reshape(np.asarray(values, dtype=float), (*leading, 1, 1)), visits.lag)
