"""The allocation of least gradient noise for its cost, from predicted values (ours)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kaestat.sampling.expected_noise import expected_noise
from kaestat.sampling.policies.base import Ask, Policy


@dataclass(frozen=True)
class Neyman(Policy):
    """``nu`` proportional to ``pi sqrt(m / c)``, with ``m = E W (R - b)^2`` as far as the history tells, c the cost.

    The gradient estimate ``sum pi / nu sum_j (R - b) s`` is unbiased whatever nu is, its variance ``sum pi^2 m / nu``
    with ``W = |s|^2``, up to terms without nu (Neyman, 1934, for strata). `expected_noise` says what m is, and why
    prompts that were not seen for long get more again by themselves. Squared score norms W are taken for alike where
    the history has no weights of completions.
    """

    def score(self, ask: Ask) -> np.ndarray:
        return ask.share * np.sqrt(expected_noise(ask.prediction, group_size=ask.group_size) / ask.cost)
