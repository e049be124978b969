"""Contextual bandits whose habits, right answers and spread of values are set, as matrix policies.

Prompt x has features ``u_x`` and each of its answers a has features ``v_xa``. The policy is ::

    pi(a | x) ~ exp(base_xa + u_x' Theta v_xa)

with one matrix Theta for all prompts, so that the score ``u_x (v_xa - E v_x)'`` has rank one and every moment is a sum
over answers. Arrays put runs first and arms last: ``S`` runs (a base and its random numbers), ``P`` prompts, ``A``
answers, ``K`` arms (designs and rates that share a run's random numbers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

LENGTH = 1.5  # of an answer's features
OTHERS = 0.3  # standard deviation of the base logits of answers of one kind
LEAST_VALUE, HOPELESS_VALUE = 1e-3, 2e-3
MOST_ANSWERS = 128  # that are counted in bytes


@dataclass(frozen=True)
class WorldSpec:
    """What a world is like.

    Attributes
    ----------
    answers, right : int
        Answers of each prompt, and how many of them are right.
    habit : float
        Logit of one wrong answer above the other wrong ones.
    centre, spread : float
        Mean and standard deviation over prompts of the logit of the value before training.
    hopeless : float
        Share of prompts whose right answers can be said and hardly ever are: value `HOPELESS_VALUE`.
    rule : float
        How far the features of right answers lie in the one direction that helps all prompts; 0 leaves nothing to learn
        but each prompt for itself, within the few parameters.
    loud : float
        How much longer the features of wrong answers are in half of the columns. Plain units count that length; an
        optimiser with a unit for each direction divides it away.
    prompts, rows, columns : int
        Number of prompts, and shape of Theta.
    """

    answers: int
    right: int
    habit: float
    centre: float
    spread: float
    hopeless: float = 0.0
    rule: float = 0.0
    loud: float = 1.0
    prompts: int = 256
    rows: int = 8
    columns: int = 8

    def __post_init__(self) -> None:
        if self.answers >= MOST_ANSWERS:
            raise ValueError(f"answers must be below {MOST_ANSWERS}, got {self.answers}.")
        if not 1 <= self.right < self.answers:
            raise ValueError(f"right must lie in 1..answers - 1, got {self.right} of {self.answers} answers.")
        if not 0 <= self.hopeless < 1:
            raise ValueError(f"hopeless must be a share in [0, 1), got {self.hopeless!r}.")


@dataclass(frozen=True, eq=False)
class World:
    """Bases of a world, or the prompts of a step of each run.

    Attributes
    ----------
    u : ndarray, shape (S, P, r)
    v : ndarray, shape (S, P, A, c)
    base : ndarray, shape (S, P, A)
    right : ndarray of 0 and 1, shape (S, P, A)
    """

    u: np.ndarray
    v: np.ndarray
    base: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, spec: WorldSpec, generators: Sequence[np.random.Generator]) -> World:
        """One base for each generator."""
        parts = zip(*(_base(spec, rng) for rng in generators), strict=True)
        return cls(*(np.stack(part) for part in parts))

    @property
    def n_prompts(self) -> int:
        """P."""
        return self.u.shape[1]

    def astype(self, dtype: type) -> World:
        """The same in another precision."""
        return World(*(part.astype(dtype) for part in (self.u, self.v, self.base, self.right)))

    def some(self, which: slice) -> World:
        """Some of the prompts."""
        return World(self.u[:, which], self.v[:, which], self.base[:, which], self.right[:, which])

    def rows(self, bases: np.ndarray) -> World:
        """The bases of runs; ``bases`` has shape (S,)."""
        return World(self.u[bases], self.v[bases], self.base[bases], self.right[bases])

    def prompts(self, which: np.ndarray, bases: np.ndarray) -> World:
        """The prompts ``which`` of each run, shape (S, P), on the bases of the runs, shape (S,)."""
        row = bases[:, None]
        return World(self.u[row, which], self.v[row, which], self.base[row, which], self.right[row, which])

    def policy(self, theta: np.ndarray) -> np.ndarray:
        """Probabilities of the answers, shape (S, P, A, K), for parameters of shape (S, r, c, K)."""
        runs, rows, columns, arms = theta.shape
        along = self.u @ theta.reshape(runs, rows, columns * arms)
        logits = self.v @ along.reshape(runs, -1, columns, arms)
        logits += self.base[..., None]
        logits -= logits.max(axis=2, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=2, keepdims=True)
        return logits

    def values(self, theta: np.ndarray) -> np.ndarray:
        """Probability of a right answer to each prompt, shape (S, P, K)."""
        return self.value_of(self.policy(theta))

    def value_of(self, policy: np.ndarray) -> np.ndarray:
        """The same of probabilities at hand."""
        return np.einsum("spak,spa->spk", policy, self.right)

    def mean_features(self, policy: np.ndarray) -> np.ndarray:
        """Mean features of an answer to each prompt, shape (S, P, c, K)."""
        return np.swapaxes(self.v, -1, -2) @ policy


def _base(spec: WorldSpec, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Features, base logits and right answers of one base; the right answers' level gives each prompt its value."""
    n, answers = spec.prompts, spec.answers
    u = rng.normal(size=(n, spec.rows)) / np.sqrt(spec.rows)
    u[:, 0] = 1 / np.sqrt(spec.rows)  # what all prompts share
    v = rng.normal(size=(n, answers, spec.columns)) * LENGTH / np.sqrt(spec.columns)
    base = rng.normal(scale=OTHERS, size=(n, answers))
    rank = np.argsort(np.argsort(rng.random((n, answers)), axis=1), axis=1)
    right = rank < spec.right
    v[..., 0] += spec.rule * right
    v[..., spec.columns // 2 :] *= np.where(right, 1.0, spec.loud)[..., None]
    base += spec.habit * (rank == spec.right)
    value = expit(spec.centre + spec.spread * rng.normal(size=n)).clip(LEAST_VALUE, 1 - LEAST_VALUE)
    value[rng.random(n) < spec.hopeless] = HOPELESS_VALUE
    level = np.log(value / (1 - value)) + _log_sum(base, ~right) - _log_sum(base, right)
    return u, v, base + right * level[:, None], right.astype(float)


def _log_sum(logits: np.ndarray, among: np.ndarray) -> np.ndarray:
    return np.log(np.sum(np.exp(logits) * among, axis=1))
