"""Kernel sums over the past at every visit of every prompt at once, for bandwidth selection on a whole log."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from kaestat.arrays import Visits
from kaestat.kernels import Kernel


class CausalSmoother:
    """Past-only kernel sums ``sum_{v < i} K((t_i - t_v) / b) x_v`` at every visit i, for any kernel and bandwidth.

    Parameters
    ----------
    series : Visits
        All visits of each prompt, shape (P, V), oldest first, padding on the right (`LogUnits.as_series`), or on the left
        (`RewardHistory.visits`).

    Notes
    -----
    Prompts visited at the same times share one V x V matrix of weights, so a bandwidth costs one matrix product.
    Otherwise each visit looks back over a window of as many visits as the bandwidth can reach.
    Direct sums in float64, not prefix sums: those lose digits to cancellation over long runs.
    """

    def __init__(self, series: Visits):
        self.present = np.asarray(series.count) > 0
        self.time = np.where(self.present, -np.asarray(series.lag, dtype=float), np.nan)
        self.mass = np.where(self.present, np.asarray(series.mass, dtype=float), 0.0)
        self.carried = np.where(self.present, np.asarray(series.carried, dtype=float), 0.0)

    @cached_property
    def common_time(self) -> np.ndarray | None:
        """Times of the visit columns if all prompts share them, shape (V,); else None."""
        if self.present.shape[1] == 0 or not self.present.any():
            return None
        earliest = np.min(np.where(self.present, self.time, math.inf), axis=0)
        latest = np.max(np.where(self.present, self.time, -math.inf), axis=0)
        filled = self.present.any(axis=0)
        if not (earliest == latest)[filled].all():
            return None
        return np.where(filled, earliest, np.nan)

    def past(self, kernel: Kernel, bandwidth: float) -> tuple[np.ndarray, np.ndarray]:
        """Mass and carried reward of the past of each visit, both (P, V), 0 where there is none.

        Parameters
        ----------
        kernel : Kernel
        bandwidth : float
            In the unit of the lags.
        """
        if self.common_time is not None:
            lag = self.common_time[:, None] - self.common_time[None, :]
            weight = np.where(lag > 0, kernel.weight(np.where(lag > 0, lag, 0.0) / bandwidth, np), 0.0)
            return self.mass @ weight.T, self.carried @ weight.T
        return self._windowed(kernel, bandwidth)

    def last(self) -> tuple[np.ndarray, np.ndarray]:
        """Mass and carried reward of the visit just before each visit: the limit of a vanishing bandwidth."""
        position = np.where(self.present, np.arange(self.present.shape[1]), -1)
        latest = np.maximum.accumulate(position, axis=1)
        before = np.concatenate([np.full((len(latest), 1), -1), latest[:, :-1]], axis=1)
        row = np.arange(len(before))[:, None]
        return (np.where(before >= 0, column[row, before], 0.0) for column in (self.mass, self.carried))

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
        rows = max(1, 8_000_000 // (n_visits * reach))
        for start in range(0, len(self.time), rows):  # blocks of prompts, to bound memory
            block = slice(start, start + rows)
            lag = self.time[block, :, None] - time[block]
            known = lag > 0
            weight = np.where(known, kernel.weight(np.where(known, lag, 0.0) / bandwidth, np), 0.0)
            mass[block] = np.einsum("pvd,pvd->pv", weight, mass_before[block])
            carried[block] = np.einsum("pvd,pvd->pv", weight, carried_before[block])
        return mass, carried

    def _reach(self, width: float) -> int:
        """Largest number of columns back to a visit less than ``width`` (or just that) before."""
        n_visits = self.present.shape[1]
        if math.isinf(width):
            return max(n_visits - 1, 0)
        low, high = 0, n_visits - 1  # bisection: if no visit d columns back is within reach, none further back is
        while low < high:
            middle = (low + high + 1) // 2
            with np.errstate(invalid="ignore"):
                within = (self.time[:, middle:] - self.time[:, :-middle] <= width).any()
            low, high = (middle, high) if within else (low, middle - 1)
        return low
