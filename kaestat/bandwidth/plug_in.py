"""The plug-in bandwidth of the Lipschitz class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.arrays import ratio
from kaestat.bandwidth.data_driven import DataDriven
from kaestat.kernels import Kernel
from kaestat.smoothing import CausalSmoother

FARTHEST = 10  # visits back; the reuse cycle of the paper


@dataclass(frozen=True)
class PlugIn(DataDriven):
    """``b* = C (s^2 / (L^2 n))^(1/3)``, the minimiser of the worst-case MSE ``L^2 b^2 mu1^2 + s^2 R / (n b)``.

    ``C = (R / (2 mu1^2))^(1/3)`` is the kernel's own constant (paper, Theorem 3 and Corollary 1, with explicit
    constants). The three unknowns are estimated by moments, pooled over prompts:

    - ``n``, completions per prompt and step: completions after a prompt's first visit over the time since then;
    - ``s^2``, the reward variance: the mean within-visit variance, or with one completion per visit the intercept of
      the regression below;
    - ``L^2``, the squared drift per step: least squares through the origin of
      ``(Zbar_t - Zbar_s)^2 - s_t^2 / n_t - s_s^2 / n_s`` on ``(t - s)^2``, over visits up to 10 apart.

    L is a root mean square over prompts, not the largest drift of any. The bandwidth lies in the range of the
    grid but not on it; where no drift is found (``L^2 <= 0``) it is the largest candidate. The path is the
    estimated worst-case MSE.

    Parameters
    ----------
    grid : sequence of float, optional
        See `DataDriven`.
    """

    name: ClassVar[str] = "plug_in"

    def statistics(self, smoother: CausalSmoother, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        several = smoother.count > 1
        known = bool(several.any())
        usable = several if known else smoother.present
        noise = smoother.variance / np.where(usable, smoother.count, 1.0)
        # Sums behind the least squares of y = L^2 d^2 + 2 s^2: d^4, d^2, 1, d^2 y, y.
        sums = np.zeros((5, len(smoother.present)))
        row, column = np.arange(len(smoother.present))[:, None], np.arange(smoother.present.shape[1])[None]
        for _ in range(FARTHEST):  # one visit further back each time
            column = np.where(column >= 0, smoother.before[row, column], -1)
            both = usable & (column >= 0) & usable[row, column]
            square = np.where(both, smoother.time - smoother.time[row, column], 0.0) ** 2
            y = (smoother.mean - smoother.mean[row, column]) ** 2 - noise - noise[row, column]
            y = np.where(both, y, 0.0)
            sums += np.stack([square**2, square, both, square * y, y]).sum(axis=2)
        after_first = np.where(smoother.has_past, smoother.count, 0.0).sum(axis=1)
        elapsed = np.nanmax(smoother.time, axis=1) - np.nanmin(smoother.time, axis=1)
        within = np.where(several, smoother.variance, 0.0).sum(axis=1)
        lone = np.full(len(within), float(not known))
        return np.stack([*sums, after_first, elapsed, within, several.sum(axis=1), lone], axis=1)

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
    fourth, second, pairs, second_y, y, completions, elapsed, within, visits, lone = np.moveaxis(mean, -1, 0)
    through_origin = ratio(second_y, fourth, 0.0, np)
    determinant = fourth * pairs - second**2
    regular = determinant > 1e-9 * fourth * pairs
    slope = ratio((pairs * second_y - second * y) * regular, determinant * regular, 0.0, np)
    intercept = ratio(y - slope * second, pairs, 0.0, np)
    drift = np.where(lone > 0, slope, through_origin)
    variance = np.where(lone > 0, np.maximum(intercept, 0.0) / 2, ratio(within, visits, 0.0, np))
    return drift, variance * ratio(elapsed, completions, 0.0, np)
