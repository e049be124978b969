"""Which prompts a run samples at each step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kaestat import AdvantageEstimator
from kaestat.sampling import PromptSampler

from .config import Design

PREDICTOR = "kae_eb"  # of policies beside methods that keep no history


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of a run's pool that are sampled, groups side by side.

    rows: ndarray of int, shape (N,).
    correction (ndarray, shape (N,)): What the advantages are multiplied with.
    """

    rows: np.ndarray
    correction: np.ndarray


class PromptSource(ABC):
    """Gives a run its batches, and sees what came of them."""

    @abstractmethod
    def batch(self, step: int, n_groups: int) -> Batch:
        """``n_groups`` different prompts."""

    @abstractmethod
    def observe(self, ids: Sequence[str], rewards: np.ndarray, step: int) -> None:
        """Completions that have been scored."""


class Epochs(PromptSource):
    """Every prompt once in random order, again and again, in a new order each time."""

    def __init__(self, n_prompts: int, group_size: int, rng: np.random.Generator):
        self._size, self._group_size, self._rng = n_prompts, group_size, rng
        self._left: list[int] = []

    def batch(self, step: int, n_groups: int) -> Batch:
        while len(self._left) < n_groups:
            self._left = [*self._left, *self._rng.permutation(self._size).tolist()]
        rows, self._left = self._left[:n_groups], self._left[n_groups:]
        return Batch(np.repeat(rows, self._group_size), np.ones(n_groups * self._group_size))

    def observe(self, ids: Sequence[str], rewards: np.ndarray, step: int) -> None:
        """Nothing: the order does not depend on rewards."""


class Adaptive(PromptSource):
    """A policy of `kaestat.sampling`, predicting from the method's own history where it keeps one."""

    def __init__(self, ids: Sequence[str], budget: int, design: Design, estimator: AdvantageEstimator, seed: int):
        self._row = {name: row for row, name in enumerate(ids)}
        self._group_size = design.group_size
        self._sampler = PromptSampler(
            ids,
            budget=budget,
            policy=design.sampling,
            predictor=estimator if estimator.baseline.horizon else PREDICTOR,
            group_size=design.group_size,
            correction=design.correction,
            seed=seed,
        )

    def batch(self, step: int, n_groups: int) -> Batch:
        drawn = self._sampler.draw(step, budget=n_groups * self._group_size)
        names = drawn.rows()
        return Batch(np.array([self._row[name] for name in names]), drawn.correction_of(names))

    def observe(self, ids: Sequence[str], rewards: np.ndarray, step: int) -> None:
        self._sampler.observe(ids, rewards, step)


def prompt_source(
    ids: Sequence[str], completions: int, design: Design, estimator: AdvantageEstimator, seed: int
) -> PromptSource:
    """The source of a design."""
    if design.sampling == "uniform":
        return Epochs(len(ids), design.group_size, np.random.default_rng(seed))
    return Adaptive(ids, completions, design, estimator, seed)
