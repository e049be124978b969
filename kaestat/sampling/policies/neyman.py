"""The allocation of least gradient noise for its cost, from predicted values (ours)."""

from dataclasses import dataclass

import numpy as np

from kaestat.sampling.expected_noise import expected_noise
from kaestat.sampling.policies.base import Ask, Policy


@dataclass(frozen=True)
class Neyman(Policy):
    """``nu`` proportional to ``pi sqrt(m / c)``, with ``m = E W (R - b)^2`` as far as the history tells, c the cost.

    The gradient estimate ``sum pi / nu sum_j (R - b) s`` is unbiased for any nu. Its variance is ``sum pi^2 m / nu``
    with ``W = |s|^2``, up to terms without nu (Neyman, 1934, for strata). `expected_noise` explains m, and why
    prompts that were not sampled for long get more again. If the history has no weights, all W are assumed equal.
    """

    def score(self, ask: Ask) -> np.ndarray:
        return ask.share * np.sqrt(expected_noise(ask.prediction, group_size=ask.group_size) / ask.cost)
