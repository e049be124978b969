"""The causal kernel smoother that contains the completion itself, as the classical criteria score it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.data_driven import ROUNDING, DataDriven, mean_square
from kaestat.smoothing.selectors.smoothing import CausalSmoother


@dataclass(frozen=True)
class CausalFitCriterion(DataDriven):
    """A selector by residual variance and trace of one linear smoother: past visits and the whole current group.

    Each completion is fitted by ``(C + K(0) S) / (A + K(0) n)`` with A and C the kernel mass and reward of the past;
    its own weight is ``K(0) / (A + K(0) n)``. Residual sums, traces and numbers of completions are pooled over
    all visits of all prompts, since the bandwidth is. With weights see `CausalSmoother.linear`.

    A subclass gives the criterion as a function of the residual variance and the trace.
    """

    @abstractmethod
    def criterion(self, variance: np.ndarray, trace: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Criterion from ``RSS / N``, ``tr`` and ``N``, all (..., B); ``inf`` where it is undefined."""

    def statistics(self, smoother: CausalSmoother, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        smoother = smoother.linear
        fits = [fit_and_trace(smoother, kernel, b) for b in grid]
        size = smoother.count.sum(axis=1)
        # Residuals below rounding are noise, which a logarithm would make much of.
        floor = ROUNDING * mean_square(smoother) * size
        residual = [np.maximum(residual.sum(axis=1), floor) for residual, _ in fits]
        contributions = np.stack([*residual, *(trace.sum(axis=1) for _, trace in fits), size], axis=1)
        return contributions * len(size)  # so that the mean over prompts is the pooled sum

    def risk(self, mean: np.ndarray, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        residual, trace, size = np.split(mean, [len(grid), 2 * len(grid)], axis=-1)
        return self.criterion(residual / size, trace, size)


def fit_and_trace(smoother: CausalSmoother, kernel: Kernel, bandwidth: float) -> tuple[np.ndarray, np.ndarray]:
    """Residual sum of squares and trace of each visit, both (P, V), 0 in the padding."""
    mass, fitted = smoother.fit(kernel, bandwidth)
    residual = smoother.mass * (smoother.scatter + (smoother.mean - fitted) ** 2)
    return residual, kernel.at_zero * smoother.mass / mass
