"""Triangular kernel sums over each prompt's visits at many bandwidths, from running sums over the newest visits.

With lags ``l`` and weights ``2 (1 - l / b)`` of the visits nearer than ``b`` steps, every kernel sum is made of moments
``sum n l^k`` over these, and they are the newest. So one running sum from the newest visit on serves all bandwidths.

Moments are of ``d = l - f``, f the lag of the newest visit, and weights are ``2 (1 - f / b) - 2 d / b``. Where all
visits are near the edge, the two parts of ``2 - 2 l / b`` would cancel to rounding.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from kaestat.core.arrays import Groups, Visits

FEWEST_VISITS, FEWEST_NUMBERS = 16, 2048  # of each prompt, and of all; measured


class NewestSums:
    """The sums of `kaestat.core.arrays.KernelSums`, each computed when it is first read; shape (B, ..., P, 1).

    Parameters
    ----------
    visits : Visits
        Those of which `pays` is true, or smaller ones alike.
    bandwidths : ndarray, broadcastable to (B, ..., P, 1)
        In steps.
    """

    @staticmethod
    def pays(groups: Groups, visits: Visits) -> bool:
        """Whether these sums are possible (unweighted float64 arrays of NumPy) and faster than one sum per bandwidth.

        Prompts that were visited together share their weights, and few visits are summed at once.
        """
        lag, shape = visits.lag, visits.count.shape
        if type(lag) is not np.ndarray or lag.dtype != np.float64 or groups.weight is not None:
            return False
        many = shape[-1] >= FEWEST_VISITS and math.prod(shape) >= FEWEST_NUMBERS
        return many and lag.shape == shape and visits.weight is None

    def __init__(self, visits: Visits, bandwidths: np.ndarray):
        self._slope, shape = 2 / bandwidths, visits.count.shape
        here = visits.count > 0
        # Padding may stand anywhere: it gets the lag of the next newer visit, and so goes in and out with that one.
        lag = np.where(here, visits.lag, 0.0)[..., ::-1]
        nearest = np.maximum.accumulate(lag, axis=-1)
        within = np.count_nonzero(nearest < bandwidths, axis=-1)  # (B, ..., P)
        rows = np.arange(int(np.prod(shape[:-1]))).reshape(shape[:-1]) * (shape[-1] + 1)
        self._at = (within + rows)[..., None]
        first = np.min(np.where(here, visits.lag, np.inf), axis=-1, keepdims=True)
        self._first = np.where(first < np.inf, first, 0.0)
        self._lag, self._here, self._visits, self._shape = lag - self._first, here, visits, shape

    def _moment(self, column: np.ndarray, power: int) -> np.ndarray:
        """``sum x d^k`` over the visits within each bandwidth."""
        column = column[..., ::-1]
        running = np.zeros((*self._shape[:-1], self._shape[-1] + 1))
        np.cumsum(column * self._lag**power if power else column, axis=-1, out=running[..., 1:])
        return running.reshape(-1).take(self._at)

    @cached_property
    def _n1(self) -> np.ndarray:
        return self._moment(self._visits.count, 1)

    @cached_property
    def _n2(self) -> np.ndarray:
        return self._moment(self._visits.count, 2)

    @cached_property
    def _n0(self) -> np.ndarray:
        return self._moment(self._visits.count, 0)

    @cached_property
    def _s1(self) -> np.ndarray:
        return self._moment(self._visits.total, 1)

    @cached_property
    def _top(self) -> np.ndarray:
        """Weight of the newest visit."""
        return 2 - self._slope * self._first

    @cached_property
    def _beyond(self) -> np.ndarray:
        """``sum w n d``."""
        return self._top * self._n1 - self._slope * self._n2

    @cached_property
    def mass(self) -> np.ndarray:
        """``sum w n``."""
        return self._top * self._n0 - self._slope * self._n1

    @cached_property
    def carried(self) -> np.ndarray:
        """``sum w Z``."""
        return self._top * self._moment(self._visits.total, 0) - self._slope * self._s1

    @cached_property
    def carried_sq(self) -> np.ndarray:
        """``sum w Z^2``."""
        column = self._visits.total_sq
        return self._top * self._moment(column, 0) - self._slope * self._moment(column, 1)

    @cached_property
    def count_sq(self) -> np.ndarray:
        """``sum w^2 n``."""
        return self._top * self.mass - self._slope * self._beyond

    @cached_property
    def mass_lag(self) -> np.ndarray:
        """``sum w n l``."""
        return self._first * self.mass + self._beyond

    @cached_property
    def mass_lag_sq(self) -> np.ndarray:
        """``sum w n l^2``."""
        squares = self._top * self._n2 - self._slope * self._moment(self._visits.count, 3)
        return self._first * (self.mass_lag + self._beyond) + squares

    @cached_property
    def carried_lag(self) -> np.ndarray:
        """``sum w l Z``."""
        return self._first * self.carried + self._top * self._s1 - self._slope * self._moment(self._visits.total, 2)

    @cached_property
    def visits(self) -> np.ndarray:
        """Number of visits of positive weight."""
        return self._moment(self._here.astype(float), 0)
