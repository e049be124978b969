"""Lepski's method, pooled over prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from array_api_compat import array_namespace

from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.data_driven import DataDriven
from kaestat.smoothing.selectors.smoothing import CausalSmoother

PAIRS_AT_ONCE = 500_000


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
    of consecutive rewards. With weights see `CausalSmoother.linear`.

    Parameters
    ----------
    grid : sequence of float, optional
        See `DataDriven`.
    """

    name: ClassVar[str] = "lepski"

    def statistics(self, smoother: CausalSmoother, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        smoother = smoother.linear
        n_prompts, size = len(smoother.present), len(grid)
        mass, fitted = (np.stack(parts, axis=1) for parts in zip(*(smoother.fit(kernel, b) for b in grid), strict=True))
        contributions = np.stack([_gram(fitted), noise_products(smoother, mass, kernel, grid)], axis=1)
        visits = smoother.present.sum(axis=1)
        return np.append(contributions.reshape(n_prompts, 2 * size**2), visits[:, None], axis=1)

    def risk(self, mean: np.ndarray, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        size = len(grid)
        gram = mean[..., :-1].reshape(*mean.shape[:-1], 2, size, size) / mean[..., -1, None, None, None]
        distance, noise = np.moveaxis(_squared_distance(gram), -3, 0)
        own_noise = np.diagonal(gram[..., 1, :, :], axis1=-2, axis2=-1)
        smaller = np.tri(size, k=-1)
        excess = np.clip((distance - noise) * smaller, 0.0, None)
        return excess.max(axis=-1) + own_noise


def noise_products(smoother: CausalSmoother, mass: np.ndarray, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
    """Covariances ``cov(m_b, m_c)`` of each prompt's estimates, added over its visits; shape (P, B, B).

    ``sum_v K(l / b) K(l / c) s_v^2 n_v / (T_b T_c)`` with T the kernel mass, shape (P, B, V).
    """
    deviation = np.sqrt(visit_variance(smoother) / np.maximum(smoother.count, 1)) * smoother.mass
    time = smoother.time if smoother.common_time is None else smoother.common_time[None]
    n_prompts, size, n_visits = mass.shape
    products = np.empty((n_prompts, size, size))
    rows = max(1, PAIRS_AT_ONCE // (size * n_visits**2))
    weight = None
    for start in range(0, n_prompts, rows):  # blocks of prompts, to stay within the processor's cache
        block = slice(start, start + rows)
        if weight is None or smoother.common_time is None:
            weight = causal_weight(time[block], kernel, grid)
        noise = weight * deviation[block, None, None, :]
        noise /= mass[block, :, :, None]
        products[block] = _gram(noise.reshape(len(noise), size, -1))
    return products


def causal_weight(time: np.ndarray, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
    """``K((t_i - t_v) / b)`` for v up to and including i, 0 elsewhere; (P, V) to (P, B, V, V)."""
    lag = time[:, None, :, None] - time[:, None, None, :]
    known = lag >= 0
    scaled = np.where(known, lag, 0.0) / grid[:, None, None]
    return np.where(known, kernel.weight(scaled, array_namespace(scaled)), 0.0)


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
