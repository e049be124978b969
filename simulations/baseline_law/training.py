"""Training of many arms on the same random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kaestat.core.arrays import ratio
from simulations.baseline_law.designs import DESIGNS, Design, Step, state_of
from simulations.baseline_law.optimisers import OPTIMISERS, Optimiser, Units
from simulations.baseline_law.world import World
from simulations.harness import Streams

CHECKS, FEW_CHECKS = 24, 8  # points of a learning curve after its start; enough for its mean
MAX_NUMBERS = 1_000_000  # of the array of answers' probabilities that stays in the processor's cache


@dataclass(frozen=True)
class Budget:
    """How much is sampled.

    Attributes
    ----------
    batch : int
        B, completions of a step.
    steps : int
        Of training.
    """

    batch: int
    steps: int

    @property
    def completions(self) -> int:
        """Of a run."""
        return self.batch * self.steps

    def checks(self, number: int = CHECKS) -> np.ndarray:
        """Steps after which accuracy is computed, from 0 to the last; shape (number + 1,)."""
        return np.unique(np.linspace(0, self.steps, number + 1).round().astype(int))


@dataclass(frozen=True, eq=False)
class Draws:
    """Random numbers of runs, the same for all designs and rates.

    Attributes
    ----------
    bases : ndarray of int, shape (S,)
        Base of each run.
    order : ndarray of int, shape (S, B T)
        Prompts in the order of their use, pass after pass.
    uniform : ndarray of float32, shape (S, T, B)
        What answers are drawn with.
    """

    bases: np.ndarray
    order: np.ndarray
    uniform: np.ndarray

    @classmethod
    def of(cls, streams: Streams, bases: Sequence[int], n_prompts: int, budget: Budget) -> Draws:
        """One run for each replicate of the streams."""
        passes = -(-budget.completions // n_prompts)
        order = streams.each("prompts", lambda rng: np.concatenate([rng.permutation(n_prompts) for _ in range(passes)]))
        uniform = streams.uniform("answers", budget.steps, budget.batch)
        return cls(np.asarray(bases), order[:, : budget.completions], uniform)

    def part(self, runs: slice) -> Draws:
        """Some of the runs."""
        return Draws(self.bases[runs], self.order[runs], self.uniform[runs])


@dataclass(frozen=True, eq=False)
class Moment:
    """A point of training.

    Attributes
    ----------
    step : int
    theta : ndarray, shape (S, r, c, K)
    units : Units
        Of the optimiser's next step.
    """

    step: int
    theta: np.ndarray
    units: Units


def curves(
    world: World,
    draws: Draws,
    names: Sequence[str],
    rates: np.ndarray,
    optimiser: str,
    budget: Budget,
    checks: int = CHECKS,
) -> np.ndarray:
    """Mean values over prompts at the checks of `Budget`, shape (S, K, checks + 1).

    Parameters
    ----------
    world : World
        Bases.
    draws : Draws
    names : sequence of str
        Design of each arm; arms of a design stand together, and all have one group size.
    rates : ndarray, shape (S, K)
    optimiser : str
    budget : Budget
    checks : int
        After the start.
    """
    chunk = max(1, MAX_NUMBERS // (len(names) * budget.batch * world.base.shape[-1]))
    parts = [slice(start, start + chunk) for start in range(0, len(draws.bases), chunk)]
    found = [_Run(world, draws.part(part), names, rates[part], optimiser, budget).curve(checks) for part in parts]
    return np.concatenate(found)


def path(
    world: World, draws: Draws, design: str, rate: float, optimiser: str, budget: Budget, at: Sequence[int]
) -> list[Moment]:
    """The policies of one design before the steps ``at``, in rising order; nothing after the last is computed."""
    run = _Run(world, draws, [design], np.full((len(draws.bases), 1), rate), optimiser, budget)
    moments, done = [], 0
    for step in at:
        run.go(done, step)
        done = step
        moments.append(Moment(step, run.theta.astype(float), run.optimiser.units(slice(None))))
    return moments


class _Run:
    """Arms of one group size, from theta = 0."""

    def __init__(self, world, draws: Draws, names, rates: np.ndarray, optimiser: str, budget: Budget):
        self.dtype = world.u.dtype.type
        self.world, self.draws, self.budget = world, draws, budget
        self.designs = _slices(names)
        sizes = {design.group_size for design, _ in self.designs}
        if len(sizes) != 1:
            raise ValueError(
                f"names must have one group size, got {sorted(sizes)} for {', '.join(dict.fromkeys(names))}."
            )
        self.size = sizes.pop()
        shape = (len(draws.bases), world.u.shape[-1], world.v.shape[-1], len(names))
        self.theta = np.zeros(shape, self.dtype)
        self.optimiser: Optimiser = OPTIMISERS[optimiser](rates[:, None, None, :].astype(self.dtype), shape)
        prompts = world.n_prompts
        per_epoch = prompts * self.size / budget.batch
        self.states = [
            state_of(design, (shape[0], prompts, part.stop - part.start), per_epoch, self.dtype)
            for design, part in self.designs
        ]

    def curve(self, number: int) -> np.ndarray:
        checks = self.budget.checks(number)
        bases = self.world.rows(self.draws.bases)
        found = [bases.values(self.theta).mean(axis=1)]
        for start, stop in pairwise(checks):
            self.go(start, stop)
            found.append(bases.values(self.theta).mean(axis=1))
        return np.stack(found, axis=-1).astype(float)

    def go(self, start: int, stop: int) -> None:
        for number in range(start, stop):
            self.theta = self.theta + self.optimiser.move(self.gradient(number))

    def gradient(self, number: int) -> np.ndarray:
        """Mean over the step's completions of advantage times score, shape (S, r, c, K)."""
        each = self.budget.batch // self.size
        prompts = self.draws.order[:, number * each : (number + 1) * each]
        world = self.world.prompts(prompts, self.draws.bases)
        policy = world.policy(self.theta)
        mean = world.mean_features(policy)
        answers = _drawn(policy, self.draws.uniform[:, number].reshape(*prompts.shape, self.size))
        runs, rows = np.ogrid[: prompts.shape[0], : prompts.shape[1]]
        reward = world.right[runs[..., None, None], rows[..., None, None], answers]
        scored = world.v[runs[..., None, None], rows[..., None, None], answers]  # (S, P, G, K, c)
        scored = np.swapaxes(scored, -1, -2) - mean[:, :, None]
        advantage = np.empty_like(reward)
        for (design, part), state in zip(self.designs, self.states, strict=True):
            weight, truth = np.ones_like(reward[..., part]), None
            if design.needs_weights:
                units = self.optimiser.units(part)
            if design.weighted:
                weight = units.of_scores(world.u, scored[..., part])
            if design.kind == "value":
                truth = world.value_of(policy[..., part])
            if design.kind == "best":
                every = units.of_scores(world.u, world.v[..., None] - mean[:, :, None, :, part])
                mass = policy[..., part] * every
                truth = ratio(np.einsum("spak,spa->spk", mass, world.right), mass.sum(axis=2), 0.0, np)
            step = Step(number, prompts, reward[..., part], weight, truth)
            advantage[..., part] = state.advantages(step)
            state.record(step)
        moved = np.einsum("spgk,spgck->spck", advantage, scored)
        shape = self.theta.shape
        flat = np.swapaxes(world.u, 1, 2) @ moved.reshape(shape[0], each, -1)
        return flat.reshape(shape) / self.dtype(self.budget.batch)


def _slices(names: Sequence[str]) -> list[tuple[Design, slice]]:
    """Designs and their arms."""
    found: dict[str, slice] = {}
    for place, name in enumerate(names):
        start = found[name].start if name in found else place
        if name in found and found[name].stop != place:
            raise ValueError(f"names must keep the arms of a design together, {name!r} is apart.")
        found[name] = slice(start, place + 1)
    return [(DESIGNS[name], part) for name, part in found.items()]


def _drawn(policy: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Answers drawn by inversion, shape (S, P, G, K), from (S, P, A, K) and (S, P, G)."""
    below = np.cumsum(policy, axis=2)[:, :, :-1, None] < uniform[:, :, None, :, None]
    # Bytes add up much faster than truth values.
    return below.view(np.int8).sum(axis=2, dtype=np.int8).astype(np.intp)
