"""The bounded record of past visits, which is all the state of most history baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Self

import numpy as np

from kaestat.core.arrays import Visits
from kaestat.core.checks import check_ids, whole_step
from kaestat.core.storage import encode_keys, reading
from kaestat.history.fields import (
    PLAIN_FIELDS,
    WEIGHTED_FIELDS,
    checked_sums,
    dtype_of,
    stored_center,
    stored_columns,
    stored_numbers,
)


class HistoryWrite(NamedTuple):
    """New contents of some rows of a history, computed before the first one is written.

    The contents are absolute: repeating an interrupted write gives the same result as one complete write.
    """

    keys: dict[Hashable, int]  # New prompts and their rows
    rows: np.ndarray  # of int, shape (K,); rows that change
    # shape (R, V) each; the columns; those that had to grow are new arrays with the present contents
    fields: dict[str, np.ndarray]
    blocks: dict[str, np.ndarray]  # shape (K, V) each; new contents of the rows
    state: np.ndarray  # shape (R, S); like ``fields``: the numbers of each prompt in addition to its visits
    numbers: np.ndarray | None  # shape (K, S); new contents of these rows of ``state``; None if they do not change
    last_step: int


class RewardHistory:
    """Per-prompt sufficient statistics of past visits, oldest first, within a horizon of steps.

    Rows are prompts (or streams of a prompt), columns are visits, right-aligned: the newest visit is in the last
    column, and unused columns have count 0. Row 0 is always empty and stands for unknown prompts. Memory is
    O(prompts x visits within the horizon): 32 bytes per visit, 48 more with weights, and the ids.

    Parameters
    ----------
    horizon : float
        Steps that a value looks back. Visits that no later step can reach are dropped; ``inf`` keeps all.
    weighted : bool
        Keep the weighted sums as well.
    with_divergence : bool
        Keep the policy divergence since the previous visit.
    max_visits : float
        Number of a prompt's newest visits that a value looks back at; ``inf`` for no limit.
    state_size : int
        How many numbers (single precision) are kept for each prompt in addition to its visits.

    Attributes
    ----------
    last_step : int
        Step of the newest visit, -1 for none since step 0: visits of a prior may have negative steps.
    center : float
        What is subtracted from the rewards in the sums.

    Examples
    --------
    >>> history = RewardHistory(horizon=10)
    >>> history.record(["a", "b"], step=0, count=[4, 4], total=[1.0, 4.0], total_sq=[1.0, 4.0])
    >>> history.visits(["b", "never seen"], step=3).total[:, -1].tolist()
    [4.0, 0.0]
    """

    def __init__(
        self,
        horizon: float = math.inf,
        *,
        weighted: bool = False,
        with_divergence: bool = False,
        max_visits: float = math.inf,
        state_size: int = 0,
    ):
        if isinstance(horizon, bool) or not isinstance(horizon, int | float | np.number) or not horizon > 0:
            raise ValueError(f"horizon must be positive (steps), got {horizon!r}.")
        if isinstance(max_visits, bool) or not isinstance(max_visits, int | float) or not max_visits >= 1:
            raise ValueError(f"max_visits must be at least 1, got {max_visits!r}.")
        names = [*PLAIN_FIELDS, *(WEIGHTED_FIELDS if weighted else ()), *(["divergence"] if with_divergence else [])]
        self.horizon, self.max_visits = float(horizon), max_visits
        self.fields = {name: np.zeros((1, 1), dtype=dtype_of(name)) for name in names}
        self.numbers = np.zeros((1, state_size), dtype=np.float32)
        self.row: dict[Hashable, int] = {}
        self.last_step, self.center = -1, 0.0

    def __len__(self) -> int:
        """Number of prompts seen."""
        return len(self.row)

    @property
    def width(self) -> int:
        """Number of visit columns at present."""
        return self.fields["step"].shape[1]

    @property
    def weighted(self) -> bool:
        """Whether weighted sums are kept."""
        return "weight" in self.fields

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without the ids."""
        return sum(field.nbytes for field in (*self.fields.values(), self.numbers))

    def visits(self, keys: Sequence[Hashable], step: int) -> Visits:
        """Past visits of ``keys`` as seen from ``step``; shape (P, V).

        Raises
        ------
        ValueError
            If a key was visited at ``step`` or later: a value must not use its own step or the future.
        """
        if (self.newest_step(keys) >= step).any():
            raise ValueError(f"step {step} is not after the last visit of every prompt asked for; visits are the past.")
        return self.visits_of(self.rows(keys), step)

    def visits_of(self, rows: np.ndarray, step: int | np.ndarray) -> Visits:
        """Visits of some rows as seen from a step, without checks."""
        sums = {name: np.take(field, rows, axis=0) for name, field in self.fields.items()}
        lag = np.subtract(step, sums.pop("step"), dtype=np.float64)
        return Visits(lag=lag, **sums, state=np.take(self.numbers, rows, axis=0) if self.numbers.shape[1] else None)

    def rows(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Row of each key, 0 for an unknown key."""
        return np.fromiter(map(self.row.get, keys, repeat(0)), dtype=np.intp, count=len(keys))

    def newest_step(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Step of the newest visit of each key, -1 for a key without visits since step 0; shape (P,)."""
        rows = self.rows(keys)
        return np.where(self.fields["count"][rows, -1] > 0, self.fields["step"][rows, -1], -1)

    def newest(self, visits: int, most: int) -> dict[str, np.ndarray]:
        """The newest visits of prompts, newest last: the sums, shape (P, ``visits``) each.

        The rows are all known prompts, or every k-th, so that there are at most ``most``. If a prompt has fewer visits,
        its first columns have count 0.
        """
        rows = slice(1, len(self) + 1, max(1, math.ceil(len(self) / most)))
        missing = visits - min(visits, self.width)
        return {
            name: np.pad(field[rows, -visits:].astype(np.float64), ((0, 0), (missing, 0)))
            for name, field in self.fields.items()
        }

    def check_new(self, keys: Sequence[Hashable], rows: np.ndarray, step: int) -> None:
        """Raise a ValueError if a key is already recorded at this step."""
        again = (self.fields["step"][rows, -1] == step) & (self.fields["count"][rows, -1] > 0)
        if again.any():
            key = keys[int(np.argmax(again))]
            raise ValueError(
                f"prompt {key!r} was already recorded at step {step}: its rewards would count twice. Pass all "
                "completions of a prompt in one call, or load the state saved before this step to replay it."
            )

    def record(self, keys: Sequence[Hashable], *, step: int, **sums: Any) -> None:
        """Append one visit for each of ``keys``.

        Parameters
        ----------
        keys : sequence of hashables
            Distinct prompts (or streams).
        step : int
            The step of this visit.
        **sums : array-like, shape (P,)
            ``count, total, total_sq`` and all other sums of this history. Keys with count 0 are skipped.

        Raises
        ------
        ValueError
            If the sums are not those of this history, a key occurs twice or is already recorded at this step, or the
            step goes backwards. The history is then unchanged.
        TypeError
            If a key is not hashable, or a sum is not a number.
        """
        keys, step = check_ids("keys", keys), whole_step(step)
        expected = set(self.fields) - {"step"}
        if set(sums) != expected:
            raise ValueError(f"this history records {', '.join(sorted(expected))}; got {', '.join(sorted(sums))}.")
        columns = checked_sums(sums, len(keys))
        if len(set(keys)) < len(keys):
            raise ValueError("keys must be distinct: add up the completions of a prompt first.")
        if step < self.last_step:
            raise ValueError(f"step went backwards: got {step} after {self.last_step}; load the state before it.")
        self.check_new(keys, self.rows(keys), step)
        present = columns["count"] > 0
        keys = [key for key, some in zip(keys, present, strict=True) if some]
        self.append(keys, step, {name: column[present] for name, column in columns.items()})

    def append(
        self, keys: Sequence[Hashable], step: int, sums: dict[str, np.ndarray], numbers: np.ndarray | None = None
    ) -> None:
        """Add a newest visit of each key; parameters as `appended`."""
        self.carry_out(self.appended(keys, self.rows(keys), step, sums, numbers))

    def appended(
        self,
        keys: Sequence[Hashable],
        rows: np.ndarray,
        step: int,
        sums: dict[str, np.ndarray],
        numbers: np.ndarray | None = None,
    ) -> HistoryWrite:
        """The write that adds a newest visit to some rows, without checks; the history is unchanged."""
        blocks = {name: np.take(field, rows, axis=0) for name, field in self.fields.items()}
        oldest = blocks["step"][blocks["count"][:, 0] > 0, 0]  # would be pushed out
        if self.width < self.max_visits and (oldest > step - self.horizon).any():
            width = int(min(wider(self.width, self.horizon), self.max_visits))
            blocks = {name: padded(block, (len(rows), width)) for name, block in blocks.items()}
        for name, block in blocks.items():
            block[:, :-1] = block[:, 1:].copy()
            block[:, -1] = step if name == "step" else sums[name]
        return self.write(blocks, keys, rows, max(self.last_step, step), numbers)

    def write(
        self,
        blocks: dict[str, np.ndarray],
        keys: Sequence[Hashable],
        rows: np.ndarray,
        last_step: int,
        numbers: np.ndarray | None = None,
    ) -> HistoryWrite:
        """The write that replaces some rows, 0 for new prompts, with blocks that are perhaps wider."""
        new = np.flatnonzero(rows == 0)
        rows = rows.copy()
        rows[new] = len(self.row) + 1 + np.arange(len(new))
        fields, state, length, width = self.fields, self.numbers, len(self.numbers), blocks["step"].shape[1]
        if (needed := len(self.row) + len(new) + 1) > length:
            length = max(needed, length + length // 8)
        if (length, width) != fields["step"].shape:
            fields = {name: padded(field, (length, width)) for name, field in fields.items()}
            state = padded(state, (length, state.shape[1]))
        named = {keys[place]: int(rows[place]) for place in new.tolist()}
        return HistoryWrite(named, rows, fields, blocks, state, numbers, last_step)

    def carry_out(self, write: HistoryWrite) -> None:
        """Write the new contents; after an interrupt, call it again with the same write."""
        self.fields, self.numbers = write.fields, write.state
        for name, block in write.blocks.items():
            write.fields[name][write.rows] = block
        if write.numbers is not None:
            write.state[write.rows] = write.numbers
        self.row.update(write.keys)
        self.last_step = write.last_step

    def state_dict(self) -> dict[str, Any]:
        """The whole state as plain data and NumPy arrays (copies)."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that returns `state_dict` as of now. It encodes the ids, which takes longest."""
        row, size = self.row, len(self)
        plain: dict[str, Any] = {
            "horizon": self.horizon,
            "max_visits": self.max_visits,
            "last_step": self.last_step,
            "center": self.center,
            "fields": {name: field[1 : size + 1].copy() for name, field in self.fields.items()},
            "numbers": self.numbers[1 : size + 1].copy() if self.numbers.shape[1] else None,
        }
        return lambda: plain | {"keys": encode_keys(list(row)[:size])}  # ids are only ever added, and at the end

    @classmethod
    @reading()
    def from_state_dict(cls, state: dict[str, Any], **options: Any) -> Self:
        """The history in the result of `state_dict`; ``options`` are further ones of the class.

        Raises
        ------
        ValueError
            If the parts of the state are inconsistent.
        """
        fields, row, last_step = stored_columns(state)
        limits = {"max_visits": state["max_visits"], **options}
        history = cls(state["horizon"], weighted="weight" in fields, with_divergence="divergence" in fields, **limits)
        if set(fields) != set(history.fields):
            raise ValueError("state: the fields of the history do not fit together; the state is corrupted.")
        history.numbers = _after_empty_row(stored_numbers(state["numbers"], len(row)))
        history.fields = {name: _after_empty_row(field) for name, field in fields.items()}
        history.row, history.last_step, history.center = row, last_step, stored_center(state["center"])
        return history


def padded(field: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The field in the upper right corner of a larger array of zeros (visits are right-aligned)."""
    larger = np.zeros(shape, dtype=field.dtype)
    larger[: field.shape[0], shape[1] - field.shape[1] :] = field
    return larger


def wider(width: int, reach: float) -> int:
    """So many columns next: a quarter more, not twice, since every prompt ever seen pays for them."""
    return min(width + max(2, width // 4), max(math.ceil(min(reach, 2**40)), width + 1))


def _after_empty_row(field: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros((1, field.shape[1]), dtype=field.dtype), field])
