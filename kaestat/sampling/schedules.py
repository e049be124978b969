"""Prompt schedules: the prompts that a training run samples at each step.

A schedule is an integer array (steps, batch_size) of prompt indices 0..n_prompts - 1, without repeats in a row.
"""

from typing import Any

import numpy as np

from kaestat.core.checks import check_seed, check_whole

_CELLS = 8_000_000  # random keys drawn at once, to bound memory


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


def past_lags(schedule: np.ndarray, step: int, prompts: np.ndarray | None = None) -> np.ndarray:
    """Lags of the past visits of some prompts: the content of a history when a step begins.

    Raises a ValueError if ``schedule`` or ``prompts`` has another form, or ``step`` lies outside the schedule.

    Parameters
    ----------
    schedule : ndarray of int, shape (steps, batch_size)
    step : int
        The current step; visits before it count. May be ``steps``, the end of the run.
    prompts : ndarray of int, shape (P,), optional
        None takes the prompts of the current step.

    Returns
    -------
    ndarray of float, shape (P, V)
        ``step`` minus the step of each visit, oldest first; padded on the left with 0, which is never a lag.
    """
    try:
        schedule = np.asarray(schedule)
    except ValueError as error:  # ragged
        raise ValueError(f"schedule must be (steps, batch_size) prompt indices ({error}).") from error
    if schedule.ndim != 2 or schedule.dtype.kind not in "iu" or (schedule.size > 0 and schedule.min() < 0):
        raise ValueError(f"schedule must be (steps, batch_size) prompt indices, got {schedule.dtype} {schedule.shape}.")
    last = len(schedule) - (prompts is None)
    step = check_whole("step", step, least=0, most=last)
    prompts = schedule[step] if prompts is None else np.asarray(prompts)
    if prompts.ndim != 1 or (prompts.dtype.kind not in "iu" and prompts.size > 0):
        raise ValueError(f"prompts must be prompt indices (P,), got {prompts.dtype} {prompts.shape}.")
    # Visits sorted by prompt, then step; each prompt's stand together.
    visits = np.unique(np.stack([schedule[:step].reshape(-1), np.repeat(np.arange(step), schedule.shape[1])]), axis=1)
    start, stop = (np.searchsorted(visits[0], prompts, side=side) for side in ("left", "right"))
    depth = int((stop - start).max(initial=0))
    place = stop[:, None] - np.arange(depth, 0, -1)
    past = place >= start[:, None]
    return np.where(past, float(step) - visits[1][np.where(past, place, 0)], 0.0)


def _shuffled_rows(n_rows: int, n: int, rng: np.random.Generator, *, keep: int) -> np.ndarray:
    """The first ``keep`` entries of an independent permutation of 0..n-1 in each row, shape (n_rows, keep)."""
    rows = np.empty((n_rows, keep), dtype=np.int64)
    at_once = max(1, _CELLS // n)
    for start in range(0, n_rows, at_once):  # blocks of rows, to bound memory
        size = min(at_once, n_rows - start)
        rows[start : start + size] = np.argsort(rng.random((size, n)), axis=1)[:, :keep]
    return rows


def _sizes(n_prompts: Any, batch_size: Any, n_steps: Any) -> tuple[int, int, int]:
    n_prompts, n_steps = check_whole("n_prompts", n_prompts), check_whole("n_steps", n_steps)
    batch_size = check_whole("batch_size", batch_size)
    if batch_size > n_prompts:
        raise ValueError(
            f"batch_size={batch_size} exceeds n_prompts={n_prompts}: a step samples without replacement; lower it."
        )
    return n_prompts, batch_size, n_steps
