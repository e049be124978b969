"""Kernel sums over the past of every visit of every prompt at once, to select a bandwidth for a whole log."""

import math
from functools import cached_property

import array_api_compat
import numpy as np

from kaestat.core.arrays import Array, Visits
from kaestat.smoothing.kernels import Kernel

EQUAL = 1e-9  # relative difference of squared weights that counts as 0


class CausalSmoother:
    """Past-only kernel sums ``sum_{v < i} K((t_i - t_v) / b) x_v`` at every visit i.

    ``series`` has all visits of each prompt, (P, V), oldest first; padding may be anywhere, and prompts and columns
    that are nothing else are left out. `time` is minus the lag, NaN in the padding; `count` and `mass` are as in
    `Visits`, 0 in the padding. Rewards are taken about their mean, so that a shift changes no choice by rounding.
    """

    def __init__(self, series: Visits):
        names = ("lag", "count", "mass", "carried", "carried_sq", "mass_sq")
        columns = np.broadcast_arrays(*(as_numpy(getattr(series, name)) for name in names))
        there = columns[2] > 0
        used = np.ix_(there.any(axis=1), there.any(axis=0))
        self.present = there[used]
        lag, *sums = (column[used] for column in columns)
        self.time = np.where(self.present, -lag, np.nan)
        self.count, self.mass, carried, carried_sq, self._mass_sq = (np.where(self.present, x, 0.0) for x in sums)
        center = carried.sum() / self.mass.sum() if self.mass.size else 0.0
        self.carried = carried - center * self.mass
        self._carried_sq = carried_sq - center * (2 * carried - center * self.mass)

    @cached_property
    def mean_weight(self) -> np.ndarray:
        """Mean weight of each visit's completions relative to all completions; (P, V), 1 without weights."""
        overall = self.mass.sum() / self.count.sum() if self.present.any() else 1.0
        return self.mass / np.maximum(self.count, 1.0) / overall

    @cached_property
    def unequal(self) -> np.ndarray:
        """Visits whose completions have different weights, shape (P, V)."""
        return self._mass_sq * self.count > self.mass**2 * (1 + EQUAL)

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

    def previous(self, column: np.ndarray) -> np.ndarray:
        """``column`` (shape (P, V)) at the previous visit of each visit; 0 if there is none."""
        row = np.arange(len(column))[:, None]
        return np.where(self.before >= 0, column[row, self.before], 0.0)

    @cached_property
    def _clock(self) -> np.ndarray:
        """Times, in the padding that of the visit before it or of the earliest of all; no row decreases."""
        earliest = np.min(self.time, where=self.present, initial=math.inf)
        return np.maximum.accumulate(np.where(self.present, self.time, earliest), axis=1)

    def past(self, kernel: Kernel, bandwidth: float) -> tuple[np.ndarray, np.ndarray]:
        """Mass and carried reward of the past of each visit, both (P, V), 0 where there is none.

        Parameters
        ----------
        kernel : Kernel
        bandwidth : float
            In the unit of the lags.
        """
        mass, carried = np.zeros_like(self.mass), np.zeros_like(self.mass)
        for back in range(1, self.mass.shape[1]):
            lag = self._clock[:, back:] - self._clock[:, :-back]
            if lag.min(where=self.present[:, back:], initial=math.inf) > bandwidth * kernel.support:
                break  # visits further back lie no nearer
            weight = kernel.weight(lag / bandwidth, np) * self.present[:, back:]
            mass[:, back:] += weight * self.mass[:, :-back]
            carried[:, back:] += weight * self.carried[:, :-back]
        return mass, carried

    def forward(self, kernel: Kernel, bandwidth: float) -> np.ndarray:
        """Prediction of each visit from the visits before it, shape (P, V).

        The kernel mean of the past. If no past visit has positive weight, it is the mean of the most recent one,
        the limit of a vanishing bandwidth; 0 without any past.
        """
        mass, carried = self.past(kernel, bandwidth)
        return np.where(mass > 0, carried / np.where(mass > 0, mass, 1.0), self.mean_before)


def as_numpy(array: Array) -> np.ndarray:
    """An array or a tensor as a NumPy array of doubles."""
    if type(array) is not np.ndarray and array_api_compat.is_torch_array(array):
        array = array.detach().cpu().numpy()
    return np.asarray(array, dtype=float)
