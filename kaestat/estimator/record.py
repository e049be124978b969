"""Record of the last step of an `AdvantageEstimator`, for metrics and logs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.arrays import Groups, Visits
from kaestat.core.samples import Packing


@dataclass(frozen=True, eq=False)
class StepRecord:
    """One step of an `AdvantageEstimator` as it was computed, without masked samples.

    The arrays are the estimator's own: they share no memory with the caller's arrays. P rows are prompts, or
    groups for baselines that compare within groups.
    """

    step: int  # Training step, 0-based
    # The baseline that gave the values. A bandwidth learned from the past is fixed for this step (`Baseline.settled`)
    baseline: Baseline
    packing: Packing  # Sample -> (row, column), and the key of each row
    groups: Groups  # shape (P, G)
    visits: Visits  # shape (P, V); visits before the step; V is 0 for baselines without a history
    carry: dict[str, np.ndarray] | Any  # The baseline's state in addition to its history, before the step
    values: np.ndarray  # of float64, shape (P, G); meaningless in the padding
    advantages: np.ndarray  # of float64, shape (P, G); meaningless in the padding

    @property
    def of_samples(self) -> tuple[np.ndarray, np.ndarray]:
        """Advantages and values of the step's samples, shape (N,) each, in their order."""
        return self.packing.unpack(self.advantages), self.packing.unpack(self.values)
