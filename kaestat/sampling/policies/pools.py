"""Difficulty pools by the last visit, as in prime-rl."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.core.checks import check_number, check_positive
from kaestat.sampling.policies.base import Ask, Policy


@dataclass(frozen=True)
class Pools(Policy):
    """Prompts are hard, normal or easy by the mean of their newest group alone, and each pool has a weight.

    A prompt that was never sampled has weight 1.

    Source: prime-rl's ``DifficultyPoolSampler`` (114f3ca) and the pools of its configuration. It does not correct for
    the weights.

    Parameters
    ----------
    hard_up_to, normal_up_to : float
        Largest mean reward of the hard and of the normal pool; above it a prompt is easy.
    hard, normal, easy : float
        Weights, 0 or more, not all 0.
    """

    hard_up_to: float = 0.25
    normal_up_to: float = 0.75
    hard: float = 0.2
    normal: float = 1.0
    easy: float = 0.2

    leaves_out: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("hard_up_to", "normal_up_to"):
            check_number(name, getattr(self, name))
        if not self.hard_up_to < self.normal_up_to:
            raise ValueError(
                f"hard_up_to must be less than normal_up_to, got {self.hard_up_to!r} and {self.normal_up_to!r}."
            )
        for name in ("hard", "normal", "easy"):
            check_positive(name, getattr(self, name), allow_zero=True)
        if self.hard == self.normal == self.easy == 0:
            raise ValueError("hard, normal, easy: at least one pool needs a positive weight.")

    def initial_state(self, n_prompts: int) -> dict[str, np.ndarray]:
        """Whether a prompt has been sampled, and the mean of its newest group."""
        return {"seen": np.zeros(n_prompts), "newest_mean": np.zeros(n_prompts)}

    def observed(
        self, state: dict[str, np.ndarray], rows: np.ndarray, count: np.ndarray, total: np.ndarray, total_sq: np.ndarray
    ) -> dict[str, np.ndarray]:
        seen, mean = state["seen"].copy(), state["newest_mean"].copy()
        seen[rows], mean[rows] = 1.0, total / count
        return {"seen": seen, "newest_mean": mean}

    def score(self, ask: Ask) -> np.ndarray:
        mean = ask.state["newest_mean"]
        weight = np.where(mean <= self.normal_up_to, self.normal, self.easy)
        weight = np.where(mean <= self.hard_up_to, self.hard, weight)
        return ask.share * np.where(ask.state["seen"] > 0, weight, 1.0)
