"""Sums of a polynomial of the lag over a trailing window of time, at every visit of every prompt.

For kernels that are polynomials on a bounded support (triangular, uniform, Epanechnikov) a kernel sum is such a sum,
and moments of the window give it at a cost that does not grow with the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Literal

import numpy as np

STRETCH = 3  # windows; longer ones overlap less, and cost more digits


def window_sums(time: np.ndarray, column: np.ndarray, coefficients: Sequence[float], width: float) -> np.ndarray:
    """``sum_v p(t_i - t_v) x_v`` over the visits v < i with ``t_i - t_v < width``, for every i, (P, V).

    ``time`` does not decrease along rows, and has at least one visit; ``column`` holds the numbers to sum, 0 in the
    padding: two at once as real and imaginary part. ``p(lag) = sum_d coefficients[d] lag^d``, and ``width`` is
    positive, ``inf`` for the whole past. The sum is exactly 0 if the window is empty.

    The sums are differences of running moments. Over a whole series these would lose digits by cancellation, so they
    run over stretches a few windows long, which begin one window early and measure time from their own start.
    """
    n_rows, n_visits = time.shape
    first = window_starts(time, width)
    reach = max(int((np.arange(n_visits) - first).max()), 1)
    stretch = min(STRETCH * reach, n_visits)
    n_stretches = -(-n_visits // stretch)
    early = reach if n_stretches > 1 else 0
    behind = n_stretches * stretch - n_visits

    def stretches(column: np.ndarray, mode: Literal["edge", "constant"]) -> np.ndarray:
        """Overlapping stretches, shape (P, S, early + stretch)."""
        padded = np.pad(column, ((0, 0), (early, behind)), mode=mode)
        return np.lib.stride_tricks.sliding_window_view(padded, early + stretch, axis=1)[:, ::stretch]

    clock, moment = stretches(time, "edge"), stretches(column, "constant")
    since = clock - clock[:, :, early, None]
    number = np.arange(n_rows * n_stretches).reshape(n_rows, n_stretches, 1)
    first = np.pad(first, ((0, 0), (0, behind)), mode="edge").reshape(n_rows, n_stretches, stretch)
    first += early + (early + stretch) * number - stretch * np.arange(n_stretches)[:, None]  # place in all stretches
    sums = np.zeros(first.shape, dtype=column.dtype)
    for power in range(len(coefficients)):
        if power:
            moment = moment * since
        running = np.zeros(since.shape, dtype=column.dtype)
        np.cumsum(moment[:, :, :-1], axis=2, out=running[:, :, 1:])
        window = running[:, :, early:] - running.reshape(-1)[first]
        sums += window * _shifted(coefficients, power, since[:, :, early:])
    return sums.reshape(n_rows, -1)[:, :n_visits]


def window_starts(time: np.ndarray, width: float) -> np.ndarray:
    """First visit v of each row with ``t_i - t_v < width``, for every i; int, shape (P, V)."""
    since = time - time[:, :1]
    span = since.max()
    width = min(width, span + 1)
    # All rows in one sorted sequence, further apart than the width; whole numbers keep whole times exact.
    row = np.arange(len(time))[:, None]
    key = (since + np.ceil(span + width + 1) * row).reshape(-1)
    width = max(width, np.spacing(key[-1]))  # less would leave the largest key as it is, and out of its own window
    first = np.searchsorted(key, key - width, side="right").reshape(time.shape)
    return first - time.shape[1] * row


def _shifted(coefficients: Sequence[float], power: int, elapsed: np.ndarray) -> np.ndarray | float:
    """Coefficient of ``s^power`` in ``p(elapsed - s)``."""
    shifted = 0.0
    for degree in reversed(range(power, len(coefficients))):
        shifted = shifted * elapsed + (-1) ** power * comb(degree, power) * coefficients[degree]
    return shifted
