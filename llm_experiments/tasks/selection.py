"""Draws of problems without replacement."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .base import Task


def select(task: Task, n: int | None, *, seed: int) -> Task:
    """The same task with ``n`` of its problems, drawn without replacement.

    Where the problems are laid out in strata (kinds of arithmetic), equal shares are taken of each, as far as they go.

    task: A frozen dataclass with a field ``problems``, as all tasks here.
    n: None keeps all, in order.
    seed: The same seed gives the same problems in the same order.
    Raises ValueError if there are fewer than ``n`` problems, or ``n`` is not positive.
    """
    if n is None:
        return task
    size = len(task.problems)
    if not 0 < n <= size:
        raise ValueError(f"n_prompts = {n} must lie between 1 and the task's {size} problems.")
    strata = getattr(task.problems, "strata", (range(size),))
    rng = np.random.default_rng(seed)
    chosen = [
        stratum[i]
        for stratum, share in zip(strata, _shares(n, [len(each) for each in strata]), strict=True)
        for i in rng.choice(len(stratum), size=share, replace=False)
    ]
    return replace(task, problems=tuple(task.problems[i] for i in rng.permutation(chosen)))


def with_ids(task: Task, ids: Sequence[str]) -> Task:
    """The same task with the problems of these ids, in this order.

    task: A frozen dataclass with a field ``problems``, as all tasks here.
    Raises ValueError if the task has no problem of an id.
    """
    by_id = {problem.id: problem for problem in task.problems}
    strange = [each for each in ids if each not in by_id]
    if strange:
        raise ValueError(f"the task has no problem {strange[0]!r} ({len(strange)} of {len(ids)} ids are unknown).")
    return replace(task, problems=tuple(by_id[each] for each in ids))


def _shares(n: int, sizes: list[int]) -> list[int]:
    """``n`` split into equal shares, none larger than its size; earlier strata get the remainder."""
    shares = [0] * len(sizes)
    while (left := n - sum(shares)) > 0:
        open_ones = [k for k, size in enumerate(sizes) if shares[k] < size]
        for rank, k in enumerate(open_ones):
            fair = left // len(open_ones) + (rank < left % len(open_ones))
            shares[k] += min(fair, sizes[k] - shares[k])
    return shares
