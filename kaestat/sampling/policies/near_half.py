"""The prompts whose values are nearest to one half."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.core.checks import check_number
from kaestat.sampling.policies.base import Ask, Policy, nearest


@dataclass(frozen=True)
class NearHalf(Policy):
    """As many prompts as the budget is enough for, those of predicted value nearest to the target; no others.

    The idea of SPEED-RL (arXiv 2506.09016), which screens prompts with a few completions of each, and of Prompt
    Curriculum Learning (arXiv 2510.01135), which uses a learned value function; here the history predicts, at no cost.
    Prompts without a visit in reach have the population's mean as their value, so some are tried repeatedly.

    Parameters
    ----------
    target : float
        The best value, in the unit of rewards.
    """

    leaves_out: ClassVar[bool] = True

    target: float = 0.5

    def __post_init__(self) -> None:
        check_number("target", self.target)

    def score(self, ask: Ask) -> np.ndarray:
        return nearest(np.abs(ask.prediction.value - self.target), ask.n_selected, ask.rng)
