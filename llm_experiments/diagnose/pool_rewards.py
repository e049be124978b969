"""Rewards of the pools at one target step, and what the completions weigh: all that the diagnostics read of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

NO_WEIGHTS: Mapping[str, np.ndarray] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class PoolRewards:
    """Rewards of the pooled completions at a target step and at the steps just before it.

    step: Target step i.
    target (ndarray, shape (P, N_target)): Rewards at step i, P prompts.
    history (ndarray, shape (P, H, N_history)): Rewards at steps i - H, ..., i - 1, oldest first. H may be 0.
    target_weight, history_weight: Squared score norms of the same completions, or proxies of them, by the name of the
        weighting (see `llm_experiments.diagnose.estimators.WEIGHTINGS`); shapes as the rewards. A weighting may be
        known at the target step alone.
    Raises ValueError if shapes do not fit, a number is not finite, or a weight is negative.
    """

    step: int
    target: np.ndarray
    history: np.ndarray
    target_weight: Mapping[str, np.ndarray] = field(default_factory=lambda: NO_WEIGHTS)
    history_weight: Mapping[str, np.ndarray] = field(default_factory=lambda: NO_WEIGHTS)

    def __post_init__(self):
        object.__setattr__(self, "target", _finite("target", self.target, ndim=2))
        object.__setattr__(self, "history", _finite("history", self.history, ndim=3))
        if len(self.target) != len(self.history):
            raise ValueError(f"target has {len(self.target)} prompts, history {len(self.history)}: give the same ones.")
        if self.n_history > self.step:
            raise ValueError(f"history has {self.n_history} steps, but only {self.step} come before step {self.step}.")
        for name, rewards in (("target_weight", self.target), ("history_weight", self.history)):
            weights = {
                kind: _finite(f"{name}[{kind!r}]", array, ndim=rewards.ndim)
                for kind, array in (getattr(self, name) or {}).items()
            }
            for kind, array in weights.items():
                if array.shape != rewards.shape:
                    raise ValueError(f"{name}[{kind!r}] has shape {array.shape}, the rewards {rewards.shape}.")
                if (array < 0).any():
                    raise ValueError(f"{name}[{kind!r}] must not be negative.")
            object.__setattr__(self, name, MappingProxyType(weights))

    @property
    def n_prompts(self) -> int:
        """P."""
        return self.target.shape[0]

    @property
    def n_target(self) -> int:
        """N_target."""
        return self.target.shape[1]

    @property
    def n_history(self) -> int:
        """H."""
        return self.history.shape[1]

    def with_weights(self, kind: str, target: np.ndarray, history: np.ndarray | None = None) -> PoolRewards:
        """The same rewards with one more weighting; without ``history`` it is known at the target step alone."""
        past = {} if history is None else {kind: history}
        return replace(
            self, target_weight={**self.target_weight, kind: target}, history_weight={**self.history_weight, **past}
        )

    def take(self, prompts: Sequence[int] | np.ndarray) -> PoolRewards:
        """These prompts alone, by position; then no estimator sees the others."""
        prompts = np.asarray(prompts, dtype=np.intp)
        return replace(
            self,
            target=self.target[prompts],
            history=self.history[prompts],
            target_weight={kind: array[prompts] for kind, array in self.target_weight.items()},
            history_weight={kind: array[prompts] for kind, array in self.history_weight.items()},
        )


def _finite(name: str, array: np.ndarray, *, ndim: int) -> np.ndarray:
    """As a float array of so many axes, or raise a ValueError that names it."""
    array = np.asarray(array, dtype=float)
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds numbers that are not finite; leave those prompts out.")
    return array
