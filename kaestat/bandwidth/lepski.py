"""Lepski's method, pooled over prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.bandwidth.data_driven import DataDriven
from kaestat.kernels import Kernel
from kaestat.smoothing import BLOCK_CELLS, CausalSmoother


@dataclass(frozen=True)
class Lepski(DataDriven):
    """Compares the estimate of each bandwidth with those of all smaller ones (Goldenshluger and Lepski, 2011).

    ::

        A(b) = max over b' < b of [ mean (m_b - m_b')^2 - noise(b, b') ]_+
        b^   = argmin of A(b) + noise(b)

    with ``m_b`` the kernel mean of the past and the current group at each visit, means over all visits of all
    prompts, ``noise(b)`` the variance of ``m_b`` and ``noise(b, b')`` that of the difference. A(b) estimates the
    squared bias: whatever a smaller bandwidth sees that b does not, beyond noise. Pooling over prompts makes both terms
    averages, so the noise is subtracted without bias, where the method for a single curve needs a majorant and a
    constant to tune. The path is that sum, an estimate of the mean squared error.

    The variance is each visit's own, or with a lone completion the prompt's mean half squared difference
    of consecutive rewards.

    Parameters
    ----------
    grid : sequence of float, optional
        See `DataDriven`.
    """

    name: ClassVar[str] = "lepski"

    def statistics(self, smoother: CausalSmoother, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        n_prompts, n_visits = smoother.present.shape
        size = len(grid)
        contributions = np.empty((n_prompts, 2, size, size))
        rows = max(1, BLOCK_CELLS // (size * n_visits**2))
        deviation = np.sqrt(visit_variance(smoother))
        for start in range(0, n_prompts, rows):  # blocks of prompts, to bound memory
            block = slice(start, start + rows)
            weight = causal_weights(smoother.time[block], smoother.mass[block], kernel, grid)
            fitted = np.einsum("pbiv,pv->pbi", weight, smoother.mean[block])
            # Visit v's mean has variance deviation^2 / count.
            weight *= (deviation[block] / np.sqrt(np.maximum(smoother.count[block], 1)))[:, None, None, :]
            noise = weight.reshape(len(weight), size, -1)
            contributions[block, 0] = _gram(fitted)
            contributions[block, 1] = _gram(noise)
        return np.append(contributions.reshape(n_prompts, -1), smoother.present.sum(axis=1)[:, None], axis=1)

    def risk(self, mean: np.ndarray, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        size = len(grid)
        gram = mean[..., :-1].reshape(*mean.shape[:-1], 2, size, size) / mean[..., -1, None, None, None]
        distance, noise = np.moveaxis(_squared_distance(gram), -3, 0)
        own_noise = np.diagonal(gram[..., 1, :, :], axis1=-2, axis2=-1)
        smaller = np.tri(size, k=-1)
        excess = np.clip((distance - noise) * smaller, 0.0, None)
        return excess.max(axis=-1) + own_noise


def causal_weights(time: np.ndarray, mass: np.ndarray, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
    """Weight of visit v's mean in the estimate at visit i, shape (P, B, V, V); rows sum to 1, or 0 in the padding."""
    lag = time[:, None, :, None] - time[:, None, None, :]
    known = lag >= 0
    u = np.where(known, lag, 0.0) / grid[:, None, None]
    weight = np.where(known, kernel.weight(u, np), 0.0) * mass[:, None, None, :]
    total = weight.sum(axis=-1, keepdims=True)
    return weight / np.where(total > 0, total, 1.0)


def visit_variance(smoother: CausalSmoother) -> np.ndarray:
    """Reward variance of each visit, shape (P, V); for a lone completion from differences along the prompt."""
    lone = smoother.has_past & (smoother.count == 1)
    half_square = np.where(lone, (smoother.mean - smoother.previous(smoother.mean)) ** 2 / 2, 0.0)
    n = lone.sum(axis=1, keepdims=True)
    by_differences = half_square.sum(axis=1, keepdims=True) / np.maximum(n, 1)
    return np.where(smoother.present & (smoother.count == 1), by_differences, smoother.variance)


def _gram(rows: np.ndarray) -> np.ndarray:
    return rows @ rows.swapaxes(-1, -2)


def _squared_distance(gram: np.ndarray) -> np.ndarray:
    """``|x_b - x_c|^2`` from inner products, shape (..., B, B)."""
    square = np.diagonal(gram, axis1=-2, axis2=-1)
    return square[..., :, None] + square[..., None, :] - 2 * gram
