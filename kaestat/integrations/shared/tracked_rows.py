"""A trainer's rows of a step in the form that estimators take: ids checked, copies of a prompt separated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.storage import encode_keys
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import IdentityCheck, UnstablePromptIds, hash_prompts


class TrackedRows(NamedTuple):
    """Rows of one step in the form that an estimator takes."""

    ids: list[Any]  # length N
    step: int
    keep: np.ndarray  # of bool, shape (N,)
    streams: list[int] | None  # of int, length N

    def kept(self) -> list[Any]:
        """Ids of the rows that are not masked."""
        return [key for key, keep in zip(self.ids, self.keep.tolist(), strict=True) if keep]


def tracked_rows(
    watch: IdentityCheck,
    size: int,
    step: int | None,
    prompts: Sequence[Any],
    ids: Sequence[Hashable] | None,
    groups: Sequence[Hashable] | None,
    mask: Sequence[bool] | np.ndarray | None,
) -> TrackedRows:
    """The rows of a call, checked; columns and errors as for `TrainerSession.advantages`."""
    keep = np.ones(size, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    step = 0 if step is None else step
    for name, column in (("prompts", prompts), ("ids", ids), ("groups", groups), ("mask", mask)):
        if column is not None and len(column) != size:
            raise ValueError(f"{name} has {len(column)} entries for {size} rewards; give one per completion.")
    kept = np.flatnonzero(keep).tolist()
    missing = next((row for row in kept if _is_missing(prompts[row])), None)
    if missing is not None:
        raise UnstablePromptIds(
            f"the prompt of row {missing} is missing or empty, so the prompt has no id: let the trainer keep the "
            "prompt with its completions, or give an id of the data set."
        )
    hashes = hash_prompts(prompts[row] for row in kept)
    names: list[Any] = [None] * size if ids is None else [key.item() if hasattr(key, "item") else key for key in ids]
    if ids is None:
        for row, name in zip(kept, hashes, strict=True):
            names[row] = name
    else:
        kept_names = [names[row] for row in kept]
        encode_keys(_distinct(kept_names))  # refuse now what a checkpoint cannot store, not at the first checkpoint
        watch.check(kept_names, hashes, step)
    return TrackedRows(names, step, keep, None if groups is None else copies(names, groups, keep))


def check_step(step: int | None, estimator: AdvantageEstimator) -> None:
    """Raise a ValueError if an estimator with a history is called without a step."""
    if step is None and looks_back(estimator.baseline):
        raise ValueError(
            f"step: method {estimator.method!r} has a history and needs the training step, but the trainer "
            "gave none. Pass the trainer's step counter, the same after a resume as without one."
        )


def looks_back(baseline: Baseline) -> bool:
    """Whether a baseline's values depend on earlier steps, so it needs stable ids, the step and checkpoints."""
    return baseline.horizon > 0 or baseline.initial_carry() is not None


def copies(names: Sequence[Hashable], groups: Sequence[Hashable], mask: Sequence[bool] | np.ndarray) -> list[int]:
    """For each row, the number of groups of the same prompt that began earlier in the batch; 0 where masked.

    Examples
    --------
    >>> copies(["a", "b", "a", "a"], ["g1", "g2", "g3", "g1"], [True] * 4)
    [0, 0, 1, 0]
    """
    number: defaultdict[Hashable, count[int]] = defaultdict(count)
    of_group: dict[tuple[Hashable, Hashable], int] = {}
    found = []
    for name, group, kept in zip(names, groups, mask, strict=True):
        if not kept:
            found.append(0)
            continue
        if (name, group) not in of_group:
            of_group[name, group] = next(number[name])
        found.append(of_group[name, group])
    return found


def _distinct(names: list[Any]) -> list[Any]:
    try:
        return list(dict.fromkeys(names))
    except TypeError:  # an id that is not hashable, which is refused with a reason
        return names


def _is_missing(prompt: Any) -> bool:
    return prompt is None or (hasattr(prompt, "__len__") and len(prompt) == 0)
