"""SPO's own sampling weights (Xu and Ding, 2025)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.core.checks import check_positive
from kaestat.sampling.policies.base import Ask, Policy


@dataclass(frozen=True)
class SpoWeights(Policy):
    """``sqrt(v (1 - v)) + epsilon`` for prompts of value v, meant for rewards 0 and 1.

    Source: Single-stream Policy Optimization (arXiv 2509.13232), which samples prompts with these weights and does not
    correct for it.

    Parameters
    ----------
    epsilon : float
        Gives prompts of value 0 and 1 a positive weight.
    """

    of_rates: ClassVar[bool] = True

    epsilon: float = 0.05

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon, allow_zero=True)

    def score(self, ask: Ask) -> np.ndarray:
        value = np.clip(ask.prediction.value, 0.0, 1.0)
        return ask.share * (np.sqrt(value * (1 - value)) + self.epsilon)
