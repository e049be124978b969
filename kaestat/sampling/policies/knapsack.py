"""Knapsack RL: numbers of completions of largest total value, a prompt's value depending on them (Li et al., 2025)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.core.checks import check_whole
from kaestat.sampling.policies.base import Ask, Policy


@dataclass(frozen=True)
class Knapsack(Policy):
    """Numbers n of completions that maximise ``sum (1 - p^n - (1 - p)^n) p (1 - p)^2`` within the budget.

    The first factor is the probability of a group with both right and wrong completions, the second the predicted gain
    of an update on it. Prompts predicted as always right or always wrong get no completions. Meant for rewards 0 and 1.

    Source: a summary of Knapsack RL (arXiv 2509.25849); we found no code by its authors. They solve an integer program
    by dynamic programming. Here numbers are expectations, so a prompt's value can be treated as concave: the
    first two completions together are worth ``2 p (1 - p)`` times the gain, the k-th ``p (1 - p) (p^(k-2) + (1 -
    p)^(k-2))`` times. The best next completion of any prompt is bought until the budget is spent. That is the
    optimum of the relaxed program, and of the integer one up to one prompt. It does not correct for its preferences.

    Parameters
    ----------
    largest : int
        Largest number of completions of a prompt.
    """

    largest: int = 128

    leaves_out: ClassVar[bool] = True
    of_rates: ClassVar[bool] = True
    takes_groups: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole("largest", self.largest, least=2)

    def score(self, ask: Ask) -> np.ndarray:
        p = np.clip(ask.prediction.value, 0.0, 1.0)
        gain = p * (1 - p) ** 2
        most = int(min(self.largest, ask.most, ask.budget))
        if not (gain > 0).any() or most < 2:
            return ask.share
        return _spent(p, gain, ask.budget, most)


def _spent(p: np.ndarray, gain: np.ndarray, budget: float, most: int) -> np.ndarray:
    """Numbers of completions of the relaxed program: the price of a completion by bisection, the last ones shared."""
    low, high = 0.0, float((gain * p * (1 - p)).max()) * (1 + 1e-9)
    for _ in range(60):
        price = (low + high) / 2
        low, high = (price, high) if _bought(p, gain, price, most).sum() > budget else (low, price)
    few, many = _bought(p, gain, high, most), _bought(p, gain, low, most)
    missing = many.sum() - few.sum()
    return few + (many - few) * min(1.0, (budget - few.sum()) / missing) if missing > 0 else few


def _bought(p: np.ndarray, gain: np.ndarray, price: float, most: int) -> np.ndarray:
    """How many completions of each prompt are worth their price.

    The k-th is worth ``gain p (1 - p) (p^(k-2) + (1 - p)^(k-2))``, which falls with k; the first two together count as
    twice half of the second's.
    """
    number = np.where(gain * p * (1 - p) >= price, 2.0, 0.0)
    low, high = np.full(len(p), 2), np.full(len(p), most)
    with np.errstate(under="ignore"):
        while (low < high).any():  # the largest k that is worth it, for all prompts at once
            k = (low + high + 1) // 2
            worth = gain * p * (1 - p) * (p ** (k - 2.0) + (1 - p) ** (k - 2.0)) >= price
            low, high = np.where(worth, k, low), np.where(worth, high, k - 1)
    return np.where(number > 0, low, 0.0)
