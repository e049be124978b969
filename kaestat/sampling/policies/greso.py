"""GRESO: prompts whose groups were all right or all wrong again and again are skipped (Zheng et al., 2025)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.core.checks import check_share
from kaestat.sampling.policies.base import Ask, Policy

LEAST_KEPT = 0.01  # probability
ALL_RIGHT, ALL_WRONG = 0.98, 0.11  # bounds of a group's mean, as in the code: one success in nine or more is none
STEP = 0.01  # of the probabilities
LOWEST, HIGHEST = 0.05, 0.95


@dataclass(frozen=True)
class Greso(Policy):
    """A prompt whose last z groups were all right is kept with probability ``max(p_easy^z, .01)``.

    If they were all wrong, ``p_hard`` takes the place of ``p_easy``. The kept prompts are sampled equally. After each
    step ``p_easy`` and ``p_hard`` move by .01, between .05 and .95: down if the share of all-right (all-wrong) groups
    is at least its target, up otherwise. For rewards in [0, 1].

    Source: GRESO (arXiv 2506.02177), and its code (Infini-AI-Lab/GRESO at caf63f4): a group counts as all right from a
    mean of .98, as all wrong up to .11, and the targets are a third and two thirds of ``target``. There, the size of a
    refill adapts too; with an exact budget no refill is needed. It does not correct for skipped prompts.

    Parameters
    ----------
    easy, hard : float
        ``p_easy`` and ``p_hard`` before the first step.
    target : float
        Wanted share of groups of both kinds in a step.
    """

    easy: float = 0.5
    hard: float = 0.5
    target: float = 0.25

    leaves_out: ClassVar[bool] = True
    of_rates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("easy", "hard", "target"):
            check_share(name, getattr(self, name))

    def initial_state(self, n_prompts: int) -> dict[str, np.ndarray]:
        """Lengths of each prompt's latest runs of all-right and all-wrong groups; ``p_easy`` and ``p_hard``."""
        return {
            "right": np.zeros(n_prompts),
            "wrong": np.zeros(n_prompts),
            "easy": np.array(self.easy),
            "hard": np.array(self.hard),
        }

    def observed(
        self, state: dict[str, np.ndarray], rows: np.ndarray, count: np.ndarray, total: np.ndarray, total_sq: np.ndarray
    ) -> dict[str, np.ndarray]:
        mean = total / count
        right, wrong = state["right"].copy(), state["wrong"].copy()
        all_right, all_wrong = mean >= ALL_RIGHT, mean <= ALL_WRONG
        right[rows] = np.where(all_right, right[rows] + 1, 0.0)
        wrong[rows] = np.where(all_wrong, wrong[rows] + 1, 0.0)
        return {
            "right": right,
            "wrong": wrong,
            "easy": _moved(state["easy"], all_right.mean() >= self.target / 3),
            "hard": _moved(state["hard"], all_wrong.mean() >= 2 * self.target / 3),
        }

    def score(self, ask: Ask) -> np.ndarray:
        kept = np.where(ask.state["right"] > 0, ask.state["easy"] ** ask.state["right"], 1.0)
        kept = np.where(ask.state["wrong"] > 0, ask.state["hard"] ** ask.state["wrong"], kept)
        return ask.share * (ask.rng.random(len(kept)) < np.maximum(kept, LEAST_KEPT))


def _moved(probability: np.ndarray, too_many: bool) -> np.ndarray:
    return np.array(max(probability - STEP, LOWEST) if too_many else min(probability + STEP, HIGHEST))
