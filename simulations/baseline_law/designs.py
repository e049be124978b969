"""Designs: how a step's completions are grouped, and what is subtracted from their rewards.

Formulas stand here for arms of one shape, (S, P, G, K), with histories as sums that decay, so that a cell takes a
minute. `tests/simulations/baseline_law/test_designs.py` compares them with `kaestat`'s baselines.

All baselines leave a completion's own reward out, except GRPO's mean, which includes it as published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kaestat.core.arrays import ratio
from kaestat.estimator.scaling import GROUP_STD_EPS

Kind = Literal["none", "batch", "pooled", "history", "value", "best", "grpo", "rloo"]
POOLED_EPOCHS, HISTORY_EPOCHS = 1.0, 8.0  # how long rewards count, in passes over the prompts


@dataclass(frozen=True)
class Design:
    """A design.

    Attributes
    ----------
    kind : str
        ``none``; ``batch``, mean of the step's other completions; ``pooled``, mean of past steps and the step's others,
        one constant for all prompts; ``history``, past rewards of the prompt, shrunk to those of all prompts; ``value``
        and ``best``, the true value and the true best baseline ``E[W R] / E[W]``; ``grpo`` and ``rloo``, the group's
        mean with and without the completion, the first divided by the group's deviation.
    group_size : int
        G.
    weighted : bool
        Whether completions count by W in the optimiser's units.
    signed : bool
        Rewards -1 and 1 in place of 0 and 1.
    """

    kind: Kind
    group_size: int = 1
    weighted: bool = False
    signed: bool = False

    @property
    def needs_weights(self) -> bool:
        """Whether W of the completions is computed."""
        return self.weighted or self.kind == "best"


# By the names that `kaestat.theory.baseline_law.predict_noise` gives them.
DESIGNS: dict[str, Design] = {
    "none": Design("none"),
    "none_signed": Design("none", signed=True),
    "batch_mean": Design("batch"),
    "history": Design("history"),
    "value": Design("value"),
    "weighted_batch_mean": Design("batch", weighted=True),
    "weighted_constant": Design("pooled", weighted=True),
    "weighted_history": Design("history", weighted=True),
    "best": Design("best"),
    **{f"grpo_{size}": Design("grpo", size) for size in (2, 4, 8, 16)},
    **{f"rloo_{size}": Design("rloo", size) for size in (2, 4)},
}
GROUP_DESIGNS = tuple(name for name, design in DESIGNS.items() if design.group_size > 1)
YARDSTICKS = ("value", "best")  # what no run knows


@dataclass(frozen=True, eq=False)
class Step:
    """Completions of a step, for the arms of one design.

    Attributes
    ----------
    number : int
    prompts : ndarray, shape (S, P)
    reward : ndarray of 0 and 1, shape (S, P, G, K)
    weight : ndarray, shape (S, P, G, K)
        W, or ones.
    truth : ndarray, shape (S, P, K)
        What the yardsticks know: the value, or the best baseline.
    """

    number: int
    prompts: np.ndarray
    reward: np.ndarray
    weight: np.ndarray
    truth: np.ndarray | None = None


class NoState:
    """Designs that need nothing but the step."""

    def __init__(self, design: Design):
        self.design = design

    def advantages(self, step: Step) -> np.ndarray:
        """Shape (S, P, G, K)."""
        reward, kind = step.reward, self.design.kind
        if kind == "none":
            return 2 * reward - 1 if self.design.signed else reward
        if kind == "batch":
            return reward - _others_mean(step.weight * reward, step.weight, axis=(1, 2))
        if kind in YARDSTICKS:
            return reward - step.truth[:, :, None]
        if kind == "rloo":
            return reward - _others_mean(reward, np.ones_like(reward), axis=2)
        centred = reward - reward.mean(axis=2, keepdims=True)
        deviation = np.sqrt((centred**2).sum(axis=2, keepdims=True) / (reward.shape[2] - 1))
        return centred / (deviation + reward.dtype.type(GROUP_STD_EPS))

    def record(self, step: Step) -> None:
        """Nothing is kept."""


class Pooled:
    """One constant: ``sum k W R / sum k W`` over past completions and the step's others, k = exp(-lag / span).

    Parameters
    ----------
    shape : tuple of int
        (S, K).
    span : float
        In steps.
    """

    def __init__(self, shape: tuple[int, int], span: float, dtype: type):
        self.decay = dtype(np.exp(-1 / span))
        self.mass, self.carried = np.zeros(shape, dtype), np.zeros(shape, dtype)

    def advantages(self, step: Step) -> np.ndarray:
        past = self.mass[:, None, None], self.carried[:, None, None]
        return step.reward - _others_mean(step.weight * step.reward, step.weight, axis=(1, 2), past=past)

    def record(self, step: Step) -> None:
        self.mass = self.decay * (self.mass + step.weight.sum(axis=(1, 2)))
        self.carried = self.decay * (self.carried + (step.weight * step.reward).sum(axis=(1, 2)))


class History:
    """Each prompt's past, shrunk to that of all prompts by moments.

    With ``x_p = sum k W R`` and ``m_p = sum k W`` over a prompt's past, ``b0 = sum_p x_p / sum_p m_p`` and the scores
    ``z_p = x_p - b0 m_p`` ::

        b_p = (x_p + kappa b0) / (m_p + kappa),   kappa = nu / tau^2
        nu = sum_p q_p / sum_p m_p,   tau^2 = [sum_p z_p^2 - sum_p q_p]_+ / sum_p m_p^2,   q_p = sum (k W (R - b0))^2

    Before anything is known, and so at the first step, the baseline is the mean of the step's others.

    Parameters
    ----------
    shape : tuple of int
        (S, N, K) with N prompts.
    span : float
        In steps.
    """

    def __init__(self, shape: tuple[int, int, int], span: float, dtype: type):
        self.decay = np.exp(-1 / span)
        self.mass, self.carried = (np.zeros(shape, dtype) for _ in range(2))
        runs, _, arms = shape
        # Sums over prompts of m, x, (k W)^2 and (k W)^2 R, and of m^2, m x and x^2, kept up to date: there are many
        # more prompts than a step visits.
        self.sums, self.squares = np.zeros((4, runs, arms)), np.zeros((3, runs, arms))

    def advantages(self, step: Step) -> np.ndarray:
        rows = np.arange(len(step.prompts))[:, None]
        level, strength = self.prior()
        level, strength = (part.astype(step.reward.dtype)[:, None] for part in (level, strength))
        mass, carried = self.mass[rows, step.prompts], self.carried[rows, step.prompts]
        with np.errstate(invalid="ignore"):
            own = np.where(np.isinf(strength), level, (carried + strength * level) / (mass + strength))
        first = _others_mean(step.weight * step.reward, step.weight, axis=(1, 2))
        return step.reward - np.where(np.isnan(own)[:, :, None], first, own[:, :, None])

    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        """b0 and kappa, both (S, K); nan and inf where nothing is known."""
        mass, carried, weight_sq, carried_sq = self.sums
        mass_sq, product, squared = self.squares
        with np.errstate(invalid="ignore", divide="ignore"):
            level = carried / mass
            noise = carried_sq * (1 - 2 * level) + weight_sq * level**2
            scores = squared - 2 * level * product + level**2 * mass_sq
            spread = np.maximum(scores - noise, 0) / mass_sq
            return level, np.where(spread > 0, noise / mass / spread, np.inf)

    def record(self, step: Step) -> None:
        rows = np.arange(len(step.prompts))[:, None]
        weight, reward = step.weight, step.reward
        terms = (weight, weight * reward, weight**2, weight**2 * reward)
        self.sums += np.stack([term.sum(axis=(1, 2)) for term in terms])
        old = self.mass[rows, step.prompts], self.carried[rows, step.prompts]
        new = old[0] + terms[0].sum(axis=2), old[1] + terms[1].sum(axis=2)  # a step has each prompt once
        self.squares += _squares(*new) - _squares(*old)
        self.mass[rows, step.prompts], self.carried[rows, step.prompts] = new
        self.mass *= self.mass.dtype.type(self.decay)
        self.carried *= self.carried.dtype.type(self.decay)
        self.sums *= np.array([self.decay, self.decay, self.decay**2, self.decay**2])[:, None, None]
        self.squares *= self.decay**2


State = NoState | Pooled | History


def state_of(design: Design, shape: tuple[int, int, int], steps_per_epoch: float, dtype: type) -> State:
    """What a design keeps between steps, for (S, N, K) runs, prompts and arms."""
    if design.kind == "pooled":
        return Pooled((shape[0], shape[2]), POOLED_EPOCHS * steps_per_epoch, dtype)
    if design.kind == "history":
        return History(shape, HISTORY_EPOCHS * steps_per_epoch, dtype)
    return NoState(design)


def _others_mean(
    carried: np.ndarray,
    mass: np.ndarray,
    *,
    axis: int | tuple[int, ...],
    past: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """Carried over mass of everything along the axes but the entry itself, and of the past; 0 where no mass is."""
    more = (0.0, 0.0) if past is None else past
    others = mass.sum(axis=axis, keepdims=True) - mass + more[0]
    return ratio(carried.sum(axis=axis, keepdims=True) - carried + more[1], others, 0.0, np)


def _squares(mass: np.ndarray, carried: np.ndarray) -> np.ndarray:
    """Sums over the step's prompts of the squares and the product, shape (3, S, K), in double precision."""
    return np.stack(
        [np.einsum("spk,spk->sk", *pair, dtype=float) for pair in ((mass, mass), (mass, carried), (carried, carried))]
    )
