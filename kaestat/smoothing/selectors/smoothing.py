"""Kernel sums over the past of every visit of every prompt at once, to select a bandwidth for a whole log."""

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from kaestat.core.arrays import Visits, namespace
from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.window_sums import window_sums

BLOCK_CELLS = 8_000_000  # numbers in a temporary array
ROW_BLOCK_NUMBERS = 32_768  # the same limit for arrays that should stay in the processor's cache
SHARED_COLUMNS = 128
EQUAL = 1e-9  # relative difference of squared weights that counts as 0
EDGE = 1e-9  # relative distance from the end of a kernel's support within which a weight is lost in rounding


class CausalSmoother:
    """Past-only kernel sums ``sum_{v < i} K((t_i - t_v) / b) x_v`` at every visit i, for any kernel and bandwidth.

    ``series`` has all visits of each prompt, (P, V), oldest first; padding may be anywhere. `time` is minus the lag,
    NaN in the padding; `count`, `mass` and `carried` are as in `Visits`, 0 in the padding.

    Prompts visited at the same times share one band matrix of weights, so a bandwidth costs one matrix product.
    Otherwise, kernels that are polynomials on a bounded support use `window_sums`; for others, each visit looks back
    over a window of as many visits as the bandwidth can reach.
    """

    def __init__(self, series: Visits):
        self.present = np.asarray(series.mass) > 0
        self.time = np.where(self.present, -np.asarray(series.lag, dtype=float), np.nan)
        columns = (series.count, series.mass, series.carried, series.carried_sq)
        self.count, self.mass, self.carried, self._carried_sq = map(self._without_padding, columns)
        self.weighted = series.weight_sq is not None
        self._mass_sq = self._without_padding(series.mass_sq) if self.weighted else self.count

    @cached_property
    def mean_weight(self) -> np.ndarray:
        """Mean weight of each visit's completions relative to all completions; (P, V), 1 without weights."""
        return self.mass / np.maximum(self.count, 1.0) / self._overall_weight

    @cached_property
    def _overall_weight(self) -> float:
        return float(self.mass.sum() / self.count.sum()) if self.present.any() else 1.0

    @cached_property
    def unequal(self) -> np.ndarray:
        """Visits whose completions have different weights, shape (P, V)."""
        if not self.weighted:
            return np.zeros_like(self.present)
        return self._mass_sq * self.count > self.mass**2 * (1 + EQUAL)

    def _without_padding(self, column: np.ndarray) -> np.ndarray:
        return np.where(self.present, np.asarray(column, dtype=float), 0.0)

    @cached_property
    def mean(self) -> np.ndarray:
        """Mean reward of each visit, shape (P, V); 0 in the padding."""
        return self.carried / np.where(self.present, self.mass, 1.0)

    @cached_property
    def scatter(self) -> np.ndarray:
        """Mean squared deviation of the completions from their visit's mean, shape (P, V)."""
        return np.clip(self._carried_sq / np.where(self.present, self.mass, 1.0) - self.mean**2, 0.0, None)

    @cached_property
    def variance(self) -> np.ndarray:
        """Unbiased reward variance within each visit, shape (P, V); 0 for a lone completion."""
        several = self.count > 1
        return np.where(several, self.scatter * self.count / np.where(several, self.count - 1, 1.0), 0.0)

    @cached_property
    def before(self) -> np.ndarray:
        """Column of the previous visit, for each column, shape (P, V); -1 if there is none."""
        latest = np.maximum.accumulate(np.where(self.present, np.arange(self.present.shape[1]), -1), axis=1)
        return np.concatenate([np.full((len(latest), 1), -1), latest[:, :-1]], axis=1)

    @cached_property
    def has_past(self) -> np.ndarray:
        """Visits with an earlier one of the same prompt, shape (P, V)."""
        return self.present & (self.before >= 0)

    @cached_property
    def mean_before(self) -> np.ndarray:
        """Mean reward of the previous visit, shape (P, V); 0 if there is none."""
        return self.previous(self.mean)

    @cached_property
    def common_time(self) -> np.ndarray | None:
        """Times of the visit columns if all prompts share them, shape (V,); else None."""
        if not self.present.any():
            return None
        earliest = np.min(np.where(self.present, self.time, math.inf), axis=0)
        latest = np.max(np.where(self.present, self.time, -math.inf), axis=0)
        filled = self.present.any(axis=0)
        if not (earliest == latest)[filled].all():
            return None
        return np.where(filled, earliest, np.nan)

    def previous(self, column: np.ndarray) -> np.ndarray:
        """``column`` (shape (P, V)) at the previous visit of each visit; 0 if there is none."""
        row = np.arange(len(column))[:, None]
        return np.where(self.before >= 0, column[row, self.before], 0.0)

    def past(self, kernel: Kernel, bandwidth: float) -> tuple[np.ndarray, np.ndarray]:
        """Mass and carried reward of the past of each visit, both (P, V), 0 where there is none.

        Parameters
        ----------
        kernel : Kernel
        bandwidth : float
            In the unit of the lags.
        """
        if self.common_time is not None:
            return self._shared(self.common_time, kernel, bandwidth)
        if kernel.polynomial is not None and self.present.any():
            return self._by_moments(kernel.polynomial, bandwidth, bandwidth * kernel.support * (1 - EDGE))
        return self._windowed(kernel, bandwidth)

    def forward(self, kernel: Kernel, bandwidth: float) -> np.ndarray:
        """Prediction of each visit from the visits before it, shape (P, V).

        The kernel mean of the past. If no past visit has positive weight, it is the mean of the most recent one,
        the limit of a vanishing bandwidth; 0 without any past.
        """
        mass, carried = self.past(kernel, bandwidth)
        return np.where(mass > 0, carried / np.where(mass > 0, mass, 1.0), self.mean_before)

    def _shared(self, common: np.ndarray, kernel: Kernel, bandwidth: float) -> tuple[np.ndarray, np.ndarray]:
        design = self.mass[:1] if (self.mass == self.mass[:1]).all() else self.mass  # one design for all prompts
        mass, carried = np.empty_like(design), np.empty_like(self.carried)
        clock = np.maximum.accumulate(np.where(np.isnan(common), -math.inf, common))
        for start in range(0, len(clock), SHARED_COLUMNS):
            first = np.searchsorted(clock, clock[start] - bandwidth * kernel.support)
            now, past = slice(start, start + SHARED_COLUMNS), slice(first, start + SHARED_COLUMNS)
            weight = _past_weight(common[now, None] - common[past], kernel, bandwidth)
            mass[:, now], carried[:, now] = design[:, past] @ weight.T, self.carried[:, past] @ weight.T
        return np.broadcast_to(mass, carried.shape), carried

    def _by_moments(
        self, polynomial: tuple[float, ...], bandwidth: float, width: float
    ) -> tuple[np.ndarray, np.ndarray]:
        mass, carried = np.empty_like(self.mass), np.empty_like(self.carried)
        coefficients = [c / bandwidth**power for power, c in enumerate(polynomial)]
        for block in row_blocks(mass.shape):
            both = window_sums(self._clock[block], self._mass_and_carried[block], coefficients, width)
            mass[block], carried[block] = both.real, both.imag
        return mass, carried

    @cached_property
    def _mass_and_carried(self) -> np.ndarray:
        """As real and imaginary part."""
        return self.mass + 1j * self.carried

    @cached_property
    def _clock(self) -> np.ndarray:
        """Times with those of the visit before in the padding, so that no row decreases."""
        earliest = np.min(self.time, where=self.present, initial=math.inf)
        return np.maximum.accumulate(np.where(self.present, self.time, earliest), axis=1)

    def _windowed(self, kernel: Kernel, bandwidth: float) -> tuple[np.ndarray, np.ndarray]:
        n_visits = self.present.shape[1]
        reach = self._reach(bandwidth * kernel.support)
        mass, carried = np.zeros_like(self.mass), np.zeros_like(self.mass)
        if reach == 0:
            return mass, carried

        def windows(column: np.ndarray, fill: float) -> np.ndarray:
            padded = np.concatenate([np.full((len(column), reach), fill), column], axis=1)
            return np.lib.stride_tricks.sliding_window_view(padded, reach, axis=1)[:, :n_visits]

        time, mass_before, carried_before = windows(self.time, np.nan), windows(self.mass, 0), windows(self.carried, 0)
        rows = max(1, BLOCK_CELLS // (n_visits * reach))
        for start in range(0, len(self.time), rows):  # blocks of prompts, to bound memory
            block = slice(start, start + rows)
            weight = _past_weight(self.time[block, :, None] - time[block], kernel, bandwidth)
            mass[block] = np.einsum("pvd,pvd->pv", weight, mass_before[block])
            carried[block] = np.einsum("pvd,pvd->pv", weight, carried_before[block])
        return mass, carried

    def _reach(self, width: float) -> int:
        """Largest number of columns back to a visit less than ``width`` (or just that) before."""
        n_visits = self.present.shape[1]
        if math.isinf(width):
            return max(n_visits - 1, 0)
        earliest = np.min(self.time, where=self.present, initial=0.0)
        # Padding takes the time of the visit before it, so that looking further back never comes nearer.
        filled = np.maximum.accumulate(np.where(self.present, self.time, earliest - 2 * width), axis=1)
        low, high = 0, n_visits - 1
        while low < high:  # bisection: if no visit d columns back is within reach, none further back is
            middle = (low + high + 1) // 2
            within = (self.present[:, middle:] & (filled[:, middle:] - filled[:, :-middle] <= width)).any()
            low, high = (middle, high) if within else (low, middle - 1)
        return low


def row_blocks(shape: tuple[int, int]) -> Iterator[slice]:
    """Blocks of rows, small enough for the processor's cache, for arrays of that shape."""
    rows = max(1, ROW_BLOCK_NUMBERS // max(shape[1], 1))
    return (slice(start, start + rows) for start in range(0, shape[0], rows))


def _past_weight(lag: np.ndarray, kernel: Kernel, bandwidth: float) -> np.ndarray:
    """``K(lag / bandwidth)`` where the lag is positive, 0 elsewhere (the present, the future and padding)."""
    past = lag > 0
    return np.where(past, kernel.weight(np.where(past, lag, 0.0) / bandwidth, namespace(lag)), 0.0)
