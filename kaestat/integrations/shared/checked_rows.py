"""The rows of a trainer's step, checked, in the form that an estimator takes."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import compress, count
from typing import Any, NamedTuple

import numpy as np

from kaestat.core.storage import encode_keys
from kaestat.integrations.shared.prompt_ids import IdentityCheck, UnstablePromptIds, hash_prompts


class CheckedRows(NamedTuple):
    """Rows of one step."""

    ids: list[Any]  # length N
    step: int
    keep: np.ndarray  # of bool, shape (N,)
    streams: list[int] | None  # of int, length N

    @classmethod
    def of(
        cls,
        size: int,
        step: int,
        check: IdentityCheck,
        prompts: Sequence[Any],
        ids: Sequence[Hashable] | None,
        groups: Sequence[Hashable] | None,
        mask: Sequence[bool] | np.ndarray | None,
    ) -> "CheckedRows":
        """The rows of a call; columns and errors as for `TrainerSession.advantages`."""
        for name, column in (("prompts", prompts), ("ids", ids), ("groups", groups), ("mask", mask)):
            if column is not None and len(column) != size:
                raise ValueError(f"{name} has {len(column)} entries for {size} rewards; give one per completion.")
        keep = np.ones(size, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
        rows = np.flatnonzero(keep).tolist()
        missing = next((row for row in rows if _is_missing(prompts[row])), None)
        if missing is not None:
            raise UnstablePromptIds(
                f"the prompt of row {missing} is missing or empty, so the prompt has no id: let the trainer keep the "
                "prompt with its completions, or give an id of the data set."
            )
        hashes = hash_prompts(prompts[row] for row in rows)
        names: list[Any] = [None] * size
        if ids is None:
            for row, name in zip(rows, hashes, strict=True):
                names[row] = name
        else:
            names = [key.item() if hasattr(key, "item") else key for key in ids]
            given = [names[row] for row in rows]
            encode_keys(given)  # refuse now what a checkpoint cannot store, not at the first checkpoint
            check.check(given, hashes, step)
        return cls(names, step, keep, None if groups is None else copies(names, groups, keep))

    def kept(self) -> list[Any]:
        """Ids of the rows that are not masked."""
        return list(compress(self.ids, self.keep.tolist()))

    def largest_group(self) -> int:
        """Completions in the largest group."""
        streams = [0] * len(self.ids) if self.streams is None else self.streams
        return max(Counter(compress(zip(self.ids, streams, strict=True), self.keep.tolist())).values())

    def arguments(self, rewards: Any, weights: Any, version: Any) -> dict[str, Any]:
        """The rows with their rewards, as an estimator's `step` and `observe` take them."""
        columns = {"prompt_ids": self.ids, "rewards": np.asarray(rewards, dtype=np.float64), "step": self.step}
        columns |= {"mask": self.keep, "stream_ids": self.streams, "weights": weights}
        return columns if version is None else columns | {"version": version}


def copies(names: Sequence[Hashable], groups: Sequence[Hashable], mask: Sequence[bool] | np.ndarray) -> list[int]:
    """For each row, the number of groups of the same prompt that began earlier in the batch; 0 where masked.

    Examples
    --------
    >>> copies(["a", "b", "a", "a", "a"], ["g1", "g2", "padding", "g3", "g1"], [True, True, False, True, True])
    [0, 0, 0, 1, 0]
    """
    number: defaultdict[Hashable, count[int]] = defaultdict(count)
    of_group: dict[tuple[Hashable, Hashable], int] = {}
    found = []
    for name, group, kept in zip(names, groups, mask, strict=True):
        if kept and (name, group) not in of_group:
            of_group[name, group] = next(number[name])
        found.append(of_group[name, group] if kept else 0)
    return found


def _is_missing(prompt: Any) -> bool:
    return prompt is None or (hasattr(prompt, "__len__") and len(prompt) == 0)
