"""Completions of a run, and ways in which they may arrive: late, in parts, and mixed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kaestat import AdvantageEstimator, AsynchronousEstimator, RewardHistory
from kaestat.baselines import registry

METHODS = {
    "kae": ("kae", {"bandwidth": 6.0, "cold_start": 0.5}),
    "kae, exponential": ("kae", {"bandwidth": 3.0, "kernel": "exponential", "cold_start": 0.5}),
    "kae, learned": ("kae", {}),
    "kae, forward_cv": ("kae", {"bandwidth": "forward_cv"}),
    "kae, fraction": ("kae", {"bandwidth": "fraction", "cold_start": 0.5}),
    "kae_eb": ("kae_eb", {"bandwidth": 8.0}),
    "kae_eb, learned": ("kae_eb", {}),
    "kae_stream": ("kae_stream", {"cold_start": 0.5}),
    "spo": ("spo", {"rho": 0.9, "scale": "none"}),
    "local_linear": ("local_linear", {"bandwidth": 8.0}),
    "local_polynomial": ("local_polynomial", {"bandwidth": 9.0, "degree": 2}),
}
METHODS |= {  # all others that keep a history in any order
    name: (name, {})
    for name, method in registry.METHODS.items()
    if method.default.horizon > 0 and method.order == "any" and method.needs is None and name not in METHODS
}
LEARNED = ("kae, learned", "kae_eb, learned")  # their strict form keeps scores from step to step
WEIGHTED = ("kae", "kae, exponential", "kae, learned", "kae, forward_cv", "kae_eb", "kae_eb, learned")


def make(name: str, order: str = "strict", **options) -> AdvantageEstimator:
    method, params = METHODS[name]
    kind = AsynchronousEstimator if order == "any" else AdvantageEstimator
    return kind(method, **params, **options)


@dataclass(frozen=True)
class Arrival:
    """Completions that come together."""

    ids: np.ndarray
    reward: np.ndarray
    version: np.ndarray
    weight: np.ndarray

    def part(self, chosen: np.ndarray) -> Arrival:
        return Arrival(self.ids[chosen], self.reward[chosen], self.version[chosen], self.weight[chosen])

    def __len__(self) -> int:
        return len(self.ids)


def run(seed: int, n_steps: int = 14, n_prompts: int = 9, *, binary: bool = True) -> list[Arrival]:
    """One arrival for each step, in order."""
    rng = np.random.default_rng(seed)
    steps = []
    for step in range(n_steps):
        here = np.flatnonzero(rng.random(n_prompts) < 0.6)
        ids = rng.permutation(np.repeat(here, rng.integers(1, 5, len(here)))) if len(here) else np.zeros(1, int)
        reward = rng.random(len(ids))
        reward = (reward < (ids + 1) / (n_prompts + 1)).astype(float) if binary else reward
        steps.append(Arrival(ids, reward, np.full(len(ids), step), rng.gamma(2.0, size=len(ids)) + 0.1))
    return steps


def mixed(steps: list[Arrival], seed: int) -> list[Arrival]:
    """The same completions in parts of any steps, in any order."""
    rng = np.random.default_rng(seed)
    whole = Arrival(*(np.concatenate([getattr(s, name) for s in steps]) for name in Arrival.__dataclass_fields__))
    order = rng.permutation(len(whole))
    n_parts = int(rng.integers(1, 2 * len(steps)))
    return [whole.part(part) for part in np.array_split(order, n_parts) if len(part)]


def visits_in(history: RewardHistory) -> dict[tuple, dict[str, float]]:
    """Sums of all visits, by prompt and step."""
    found, fields = {}, history.fields
    for key, row in history.row.items():
        for column in np.flatnonzero(fields["count"][row]):
            sums = {name: float(field[row, column]) for name, field in fields.items()}
            found[key, int(sums.pop("step"))] = sums
    return found


def visits_of(estimator: AdvantageEstimator, now: int) -> dict[tuple, dict[str, float]]:
    """Sums of the visits that a step ``now`` reaches, by prompt and step."""
    history = estimator.history
    return {visit: sums for visit, sums in visits_in(history).items() if now - visit[1] <= history.horizon}
