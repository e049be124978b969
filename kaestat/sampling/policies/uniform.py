"""Every prompt as often as the objective weighs it."""

from dataclasses import dataclass

import numpy as np

from kaestat.sampling.policies.base import Ask, Policy


@dataclass(frozen=True)
class Uniform(Policy):
    """``nu = B pi``: what trainers do, up to the order of an epoch."""

    def score(self, ask: Ask) -> np.ndarray:
        return ask.share
