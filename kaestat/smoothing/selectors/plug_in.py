"""The plug-in bandwidth of the Lipschitz class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.core.arrays import ratio
from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.data_driven import DataDriven
from kaestat.smoothing.selectors.smoothing import CausalSmoother

FARTHEST = 10  # visits back; the reuse cycle of the paper


@dataclass(frozen=True)
class PlugIn(DataDriven):
    """``b* = C (s^2 / (L^2 n))^(1/3)``, the minimiser of the worst-case MSE ``L^2 b^2 mu1^2 + s^2 R / (n b)``.

    ``C = (R / (2 mu1^2))^(1/3)`` is the kernel's own constant (paper, Theorem 1 and Corollary 1, with explicit
    constants). The three unknowns are estimated by moments, pooled over prompts:

    - ``n``, completions per prompt and step: completions after a prompt's first visit over the time since then;
    - ``L^2``, the squared drift per step: least squares through the origin of
      ``(Zbar_t - Zbar_s)^2 - s_t^2 / n_t - s_s^2 / n_s`` on ``(t - s)^2``, over visits up to 10 apart. With one
      completion per visit its variance is unknown, so a product of two differences without common rewards takes the
      place of the square: ``(Z_t - Z_s) (Z_t' - Z_s')`` on ``(t - s) (t' - s')``, with t' and s' the visits before;
    - ``s^2``, the reward variance: the mean within-visit variance, or with one completion per visit the mean half
      squared difference of consecutive rewards, less what the drift contributes to it.

    L is a root mean square over prompts, not the largest drift of any. The bandwidth lies in the range of the
    grid but not on it; where no drift is found (``L^2 <= 0``) it is the largest candidate. The path is the
    estimated worst-case MSE. With weights see `CausalSmoother.linear`.

    Parameters
    ----------
    grid : sequence of float, optional
        See `DataDriven`.
    """

    name: ClassVar[str] = "plug_in"

    def statistics(self, smoother: CausalSmoother, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        smoother = smoother.linear
        several = smoother.count > 1
        known = bool(several.any())
        usable = several if known else smoother.present
        noise = smoother.variance / np.where(usable, smoother.count, 1.0)
        squared, crossed = np.zeros((2, len(smoother.present)))
        row, column = np.arange(len(smoother.present))[:, None], np.arange(smoother.present.shape[1])[None]
        for _ in range(FARTHEST):  # one visit further back each time
            column = np.where(column >= 0, smoother.before[row, column], -1)
            both = usable & (column >= 0) & usable[row, column]
            elapsed = np.where(both, smoother.time - smoother.time[row, column], 0.0)
            difference = smoother.mean - smoother.mean[row, column]
            if known:
                x, y = elapsed**2, difference**2 - noise - noise[row, column]
            else:
                disjoint = (column >= 0) & (column < smoother.before) & (smoother.before[row, column] >= 0)
                x = elapsed * np.where(disjoint, smoother.previous(elapsed), 0.0)
                y = difference * smoother.previous(difference)
            squared += np.sum(x**2, axis=1)
            crossed += np.sum(x * y, axis=1)
        spread, visits, drifted = _variance_sums(smoother, several if known else None)
        later = np.where(smoother.has_past, smoother.count, 0.0).sum(axis=1)
        span = np.nanmax(smoother.time, axis=1) - np.nanmin(smoother.time, axis=1)
        return np.stack([squared, crossed, spread, visits, drifted, later, span], axis=1)

    def risk(self, mean: np.ndarray, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        drift, variance_rate = drift_and_variance_rate(mean)
        bias = np.maximum(drift, 0.0)[..., None] * (grid * kernel.mu1) ** 2
        return bias + variance_rate[..., None] * kernel.roughness / grid

    def bandwidth(self, mean: np.ndarray, kernel: Kernel, grid: np.ndarray, resolution: float) -> np.ndarray:
        drift, variance_rate = drift_and_variance_rate(mean)
        # Drift that over the whole grid amounts to rounding is none.
        drifts = drift * grid[-1] ** 2 > resolution
        best = kernel.lipschitz_bandwidth_constant * ratio(variance_rate, drift * drifts, 0.0, np) ** (1 / 3)
        return np.where(drifts, np.clip(best, grid[0], grid[-1]), grid[-1])


def drift_and_variance_rate(mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared drift per step ``L^2`` and reward variance over completions per step ``s^2 / n``, both (...,)."""
    squared, crossed, spread, visits, drifted, later, span = np.moveaxis(mean, -1, 0)
    drift = ratio(crossed, squared, 0.0, np)
    variance = ratio(np.maximum(spread - np.maximum(drift, 0.0) * drifted, 0.0), visits, 0.0, np)
    return drift, variance * ratio(span, later, 0.0, np)


def _variance_sums(smoother: CausalSmoother, several: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each prompt: sum of variance estimates, their number, and what a unit of ``L^2`` adds to it; (P,) each."""
    if several is not None:
        spread = np.where(several, smoother.variance, 0.0).sum(axis=1)
        return spread, several.sum(axis=1), np.zeros_like(spread)
    gap = np.where(smoother.has_past, smoother.time - smoother.previous(smoother.time), 0.0)
    difference = np.where(smoother.has_past, smoother.mean - smoother.previous(smoother.mean), 0.0)
    return (difference**2 / 2).sum(axis=1), smoother.has_past.sum(axis=1), (gap**2 / 2).sum(axis=1)
