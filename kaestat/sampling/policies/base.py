"""The base class of all sampling policies: small frozen objects that score prompts from their past."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.estimator.prediction import Prediction


@dataclass(frozen=True, eq=False)
class Ask:
    """The data that a policy may use: the past alone."""

    prediction: Prediction  # Predictions for every prompt of the pool, shape (P,)
    state: dict[str, np.ndarray]  # The policy's own state (`Policy.initial_state`)
    share: np.ndarray  # shape (P,); weights pi of the prompts in the objective; they sum to 1
    cost: np.ndarray  # shape (P,); expected cost of one completion of each prompt, in any unit
    budget: float  # In completions, or in groups if these have a fixed size
    most: float  # Largest amount for one prompt, in the same unit
    group_size: int  # Completions of a group; 1 if numbers of completions are free
    rng: np.random.Generator  # Generator for policies that draw

    @property
    def n_selected(self) -> int:
        """How many prompts fit into the budget at the most completions each; one if there is no limit."""
        each = self.most if np.isfinite(self.most) else 1.0
        return min(len(self.share), max(1, int(np.ceil(self.budget / each - 1e-9))))


@dataclass(frozen=True)
class Policy(ABC):
    """A score of each prompt; expected numbers of completions are proportional to it.

    Attributes
    ----------
    leaves_out : bool
        Whether some prompts may have a score of 0.
    takes_groups : bool
        Whether prompts can get whole groups of a fixed size; False if the policy chooses the size.
    of_rates : bool
        Whether the policy takes rewards for successes, so that they should lie between 0 and 1.
    """

    leaves_out: ClassVar[bool] = False
    takes_groups: ClassVar[bool] = True
    of_rates: ClassVar[bool] = False

    def warn_of(self, rewards: np.ndarray) -> None:
        """Warn where rewards lie outside [0, 1], and the policy takes them for successes."""
        if self.of_rates and ((rewards < 0) | (rewards > 1)).any():
            warnings.warn(
                f"rewards: the policy {type(self).__name__.lower()} draws by success rates, so rewards should lie in "
                "[0, 1]; map them, or choose policy='neyman'.",
                stacklevel=3,
            )

    @abstractmethod
    def score(self, ask: Ask) -> np.ndarray:
        """Score of each prompt, shape (P,); 0 for a prompt that should not be sampled."""

    def initial_state(self, n_prompts: int) -> dict[str, np.ndarray]:
        """What the policy stores for each prompt in addition to its history, before the first step."""
        return {}

    def observed(
        self, state: dict[str, np.ndarray], rows: np.ndarray, count: np.ndarray, total: np.ndarray, total_sq: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The state after the completions of a step are scored.

        Parameters
        ----------
        state : dict
            The state before; unchanged.
        rows : ndarray of int, shape (K,)
            Positions of the prompts in the pool, each once.
        count, total, total_sq : ndarray, shape (K,)
            Number of completions of each, and sums of their rewards and squared rewards.
        """
        return state


def nearest(distance: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    """1 for the ``number`` prompts of least distance, ties at random; 0 for the others."""
    chosen = np.lexsort((rng.random(len(distance)), distance))[:number]
    score = np.zeros(len(distance))
    score[chosen] = 1.0
    return score
