"""The corrected Akaike criterion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.smoothing.selectors.causal_fit import CausalFitCriterion
from kaestat.smoothing.selectors.data_driven import ROUNDING
from kaestat.smoothing.selectors.smoothing import CausalSmoother


@dataclass(frozen=True)
class Aicc(CausalFitCriterion):
    """``log(RSS / N) + 1 + 2 (tr + 1) / (N - tr - 2)`` (Hurvich, Simonoff and Tsai, 1998), pooled over prompts.

    The path is on a log scale, not in squared rewards. At fewer than ``tr + 2`` completions the criterion is infinite.

    Parameters
    ----------
    grid : sequence of float, optional
        See `DataDriven`.
    """

    name: ClassVar[str] = "aicc"

    def criterion(self, variance: np.ndarray, trace: np.ndarray, size: np.ndarray) -> np.ndarray:
        freedom = size - trace - 2
        undefined = freedom <= 0
        level = np.log(np.maximum(variance, np.finfo(float).tiny))
        return np.where(undefined, np.inf, level + 1 + 2 * (trace + 1) / np.where(undefined, 1.0, freedom))

    def resolution(self, smoother: CausalSmoother) -> float:
        return ROUNDING  # of a logarithm
