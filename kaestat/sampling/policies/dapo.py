"""DAPO's dynamic sampling: uniform prompts, and groups without variance are replaced (Yu et al., 2025)."""

from dataclasses import dataclass

import numpy as np

from kaestat.sampling.policies.base import Ask, Policy


@dataclass(frozen=True)
class Dapo(Policy):
    """`Uniform`: what is generated costs the budget, whether it is kept or not.

    Source: DAPO (arXiv 2503.14476). It generates until enough groups have both right and wrong completions, and divides
    by those kept (`live_groups` says which). With a group baseline the dropped ones would have had advantage 0 anyway.
    So at an equal number of *generated* completions it is uniform sampling with a longer step, not another allocation.
    It is here for comparison, since users have it.
    """

    def score(self, ask: Ask) -> np.ndarray:
        return ask.share


def live_groups(rewards: np.ndarray) -> np.ndarray:
    """Which groups are kept: those whose rewards differ.

    Parameters
    ----------
    rewards : ndarray, shape (..., G)

    Returns
    -------
    ndarray of bool, shape (...)
    """
    return rewards.max(axis=-1) > rewards.min(axis=-1)
