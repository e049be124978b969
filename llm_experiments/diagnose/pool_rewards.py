"""Rewards of the pools at one target step, and what the completions weigh: all that the diagnostics read of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class PoolRewards:
    """Rewards of the pooled completions at a target step and at the steps just before it.

    step: Target step i.
    target (ndarray, shape (P, N_target)): Rewards at step i, P prompts.
    history (ndarray, shape (P, H, N_history)): Rewards at steps i - H, ..., i - 1, oldest first. H may be 0.
    target_weight, history_weight: Squared score norms of the same completions, or proxies of them, by the name of the
        weighting (see `llm_experiments.diagnose.estimators.WEIGHTINGS`); shapes as the rewards.
    """

    step: int
    target: np.ndarray
    history: np.ndarray
    target_weight: Mapping[str, np.ndarray] = field(default_factory=dict)
    history_weight: Mapping[str, np.ndarray] = field(default_factory=dict)

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

    def with_weights(self, kind: str, target: np.ndarray, history: np.ndarray) -> PoolRewards:
        """The same rewards with one more weighting."""
        return replace(
            self,
            target_weight={**self.target_weight, kind: target},
            history_weight={**self.history_weight, kind: history},
        )

    def first(self, n_prompts: int) -> PoolRewards:
        """The first prompts alone; then no estimator sees the others."""
        return replace(self, target=self.target[:n_prompts], history=self.history[:n_prompts])
