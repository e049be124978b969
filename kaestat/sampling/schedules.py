"""Prompt schedules: the prompts that a training run samples at each step.

A schedule is an integer array (steps, batch_size) of prompt indices 0..n_prompts - 1, without repeats in a row.
"""

from typing import Any

import numpy as np

from kaestat.core.checks import check_seed, check_whole


def uniform(n_prompts: int, batch_size: int, n_steps: int, *, seed: int = 0) -> np.ndarray:
    """A fresh minibatch at each step, uniform without replacement, independent over steps (paper, Assumption 1).

    An array of int, shape (n_steps, batch_size), of the ``n_prompts`` prompts. Raises a ValueError if a size is not a
    whole number of at least 1, or the batch is larger than the set of prompts.
    """
    n_prompts, batch_size, n_steps = _sizes(n_prompts, batch_size, n_steps)
    return _shuffled_rows(n_steps, n_prompts, check_seed(seed), keep=batch_size)


def epochs(n_prompts: int, batch_size: int, n_steps: int, *, seed: int = 0) -> np.ndarray:
    """Shuffled passes over all prompts, cut into minibatches.

    A pass has ``n_prompts // batch_size`` steps. The remaining ``n_prompts % batch_size`` prompts (different ones in
    each pass) are left out, as by a data loader that drops the last, short batch.

    Parameters, returns and errors are those of `uniform`.
    """
    n_prompts, batch_size, n_steps = _sizes(n_prompts, batch_size, n_steps)
    per_pass = n_prompts // batch_size
    n_passes = -(-n_steps // per_pass)
    order = _shuffled_rows(n_passes, n_prompts, check_seed(seed), keep=per_pass * batch_size)
    return order.reshape(n_passes * per_pass, batch_size)[:n_steps]


def reuse(n_prompts: int, batch_size: int, n_steps: int, *, repeats: int = 10, seed: int = 0) -> np.ndarray:
    """The paper's schedule: a fixed partition into minibatches, each used for ``repeats`` (J) consecutive steps.

    Minibatches are drawn without replacement; once all have been used, a new pass begins in a new order. The
    ``n_prompts % batch_size`` prompts (random ones) that do not fill a minibatch are never sampled. The paper's J is 10
    (GSM8K, MATH) and 8 (DAPO). The result and errors are as for `uniform`; J must be 1 or more.
    """
    n_prompts, batch_size, n_steps = _sizes(n_prompts, batch_size, n_steps)
    repeats = check_whole("repeats", repeats)
    rng = check_seed(seed)
    n_batches = n_prompts // batch_size
    batches = rng.permutation(n_prompts)[: n_batches * batch_size].reshape(n_batches, batch_size)
    n_draws = -(-n_steps // repeats)
    drawn = _shuffled_rows(-(-n_draws // n_batches), n_batches, rng, keep=n_batches).reshape(-1)[:n_draws]
    return np.repeat(batches[drawn], repeats, axis=0)[:n_steps]


def _shuffled_rows(n_rows: int, n: int, rng: np.random.Generator, *, keep: int) -> np.ndarray:
    """The first ``keep`` entries of an independent permutation of 0..n-1 in each row, shape (n_rows, keep)."""
    return np.stack([np.argsort(rng.random(n))[:keep] for _ in range(n_rows)])


def _sizes(n_prompts: Any, batch_size: Any, n_steps: Any) -> tuple[int, int, int]:
    n_prompts, n_steps = check_whole("n_prompts", n_prompts), check_whole("n_steps", n_steps)
    batch_size = check_whole("batch_size", batch_size)
    if batch_size > n_prompts:
        raise ValueError(
            f"batch_size={batch_size} exceeds n_prompts={n_prompts}: a step samples without replacement; lower it."
        )
    return n_prompts, batch_size, n_steps
