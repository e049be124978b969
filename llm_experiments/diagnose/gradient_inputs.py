"""What both gradient diagnostics start from: checked pools with exact weights, estimators, and floors."""

from collections.abc import Sequence

import numpy as np

from llm_experiments.diagnose.estimators import (
    Estimator,
    check_estimators,
    plain_estimators,
    weighted_estimators,
)
from llm_experiments.diagnose.pool_rewards import PoolRewards

FLOORS = ("oracle", "best_baseline")


def floor_values(pool: PoolRewards) -> dict[str, np.ndarray]:
    """Best constants for each prompt's pool, shape (P, 1): its value, and its best baseline."""
    weight = pool.target_weight["exact"]
    value = pool.target.mean(axis=1, keepdims=True)
    mass = weight.sum(axis=1, keepdims=True)
    best = (weight * pool.target).sum(axis=1, keepdims=True) / np.where(mass > 0, mass, 1.0)
    return {"oracle": value, "best_baseline": np.where(mass > 0, best, value)}


def prepared(
    pool: PoolRewards, gram: np.ndarray, estimators: Sequence[Estimator] | None, *, group_size: int
) -> tuple[PoolRewards, list[Estimator]]:
    """The pool with the Gram's diagonal as exact weights, and the estimators; both checked."""
    size = pool.n_target
    if gram.shape != (pool.n_prompts, size, size):
        raise ValueError(f"gram has shape {gram.shape}, the pool needs {(pool.n_prompts, size, size)}.")
    if not np.isfinite(gram).all():
        raise ValueError("gram holds numbers that are not finite; leave those prompts out by PoolRewards.take.")
    if group_size < 2:
        raise ValueError(f"group_size must be at least 2, got {group_size!r}: values are leave-one-out.")
    pool = pool.with_weights("exact", np.diagonal(gram, axis1=1, axis2=2))
    estimators = plain_estimators() + weighted_estimators(pool) if estimators is None else list(estimators)
    check_estimators(estimators, pool)
    return pool, estimators
