"""Generalised cross-validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.smoothing.selectors.causal_fit import CausalFitCriterion


@dataclass(frozen=True)
class Gcv(CausalFitCriterion):
    """``(RSS / N) / (1 - tr / N)^2`` (Craven and Wahba, 1979) of the causal smoother, pooled over prompts.

    It estimates the squared error of predicting a new reward, and so contains the reward variance.

    Parameters
    ----------
    grid : sequence of float, optional
        See `DataDriven`.
    """

    name: ClassVar[str] = "gcv"

    def criterion(self, variance: np.ndarray, trace: np.ndarray, size: np.ndarray) -> np.ndarray:
        freedom = 1 - trace / size
        interpolates = freedom <= 1e-9
        return np.where(interpolates, np.inf, variance / np.where(interpolates, 1.0, freedom) ** 2)
