"""The columns of a history, and the rule for adding more."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

import numpy as np

from kaestat.core.arrays import Visits


class HistoryWrite(NamedTuple):
    """New contents of some rows of a history, computed before the first one is written.

    The contents are absolute: repeating an interrupted write gives the same result as one complete write.
    """

    columns: Columns  # The columns that `Columns.carry_out` changes
    keys: dict[Hashable, int]  # New prompts and their rows
    rows: np.ndarray  # of int, shape (K,); rows that change
    # shape (R, V) each; the columns; those that had to grow are new arrays with the present contents
    fields: dict[str, np.ndarray]
    blocks: dict[str, np.ndarray]  # shape (K, V) each; new contents of the rows
    state: np.ndarray  # shape (R, S); like ``fields``: the numbers of each prompt in addition to its visits
    numbers: np.ndarray | None  # shape (K, S); new contents of these rows of ``state``; None if they do not change
    last_step: int  # New values of the columns' attributes
    records: int


@dataclass(eq=False)
class Columns:
    """The right-aligned arrays of a `kaestat.RewardHistory`: the newest visit of a prompt is in the last column."""

    horizon: float  # See `kaestat.RewardHistory`, also for ``last_step`` and ``records``
    max_visits: float
    fields: dict[str, np.ndarray]  # shape (R, V) each; row 0 is empty
    state: np.ndarray  # of float32, shape (R, S); the numbers of each prompt in addition to its visits
    row: dict[Hashable, int] = field(default_factory=dict)  # The row of each prompt
    last_step: int = -1
    records: int = 0
    center: float = 0.0  # What is subtracted from the rewards in the sums

    @property
    def width(self) -> int:
        """Number of visit columns at present."""
        return self.fields["step"].shape[1]

    def rows(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Row of each key, 0 for an unknown key."""
        return np.fromiter(map(self.row.get, keys, repeat(0)), dtype=np.intp, count=len(keys))

    def carry_out(self, write: HistoryWrite) -> None:
        """Write the new contents; after an interrupt, call it again with the same write."""
        self.fields, self.state = write.fields, write.state
        for name, block in write.blocks.items():
            write.fields[name][write.rows] = block
        if write.numbers is not None:
            write.state[write.rows] = write.numbers
        self.row.update(write.keys)
        self.last_step, self.records = write.last_step, write.records

    def visits(self, rows: np.ndarray, step: int | np.ndarray) -> Visits:
        """Visits of some rows as seen from a step."""
        sums = {name: np.take(column, rows, axis=0) for name, column in self.fields.items()}
        lag = np.subtract(step, sums.pop("step"), dtype=np.float64)
        return Visits(lag=lag, **sums, state=np.take(self.state, rows, axis=0) if self.state.shape[1] else None)

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
        """The write that adds a newest visit to some rows, without checks; the columns are unchanged."""
        blocks = {name: np.take(column, rows, axis=0) for name, column in self.fields.items()}
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
        if len(new):
            rows = rows.copy()
            rows[new] = len(self.row) + 1 + np.arange(len(new))
        length, width = len(self.state), blocks["step"].shape[1]
        if (needed := len(self.row) + len(new) + 1) > length:
            length = max(needed, length + length // 8)
        fields, state = self.fields, self.state
        if (length, width) != fields["step"].shape:
            fields = {name: padded(column, (length, width)) for name, column in fields.items()}
            state = padded(state, (length, state.shape[1]))
        named = {keys[place]: int(rows[place]) for place in new.tolist()}
        return HistoryWrite(self, named, rows, fields, blocks, state, numbers, last_step, self.records + 1)


def padded(column: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The column in the upper right corner of a larger array of zeros (visits are right-aligned)."""
    larger = np.zeros(shape, dtype=column.dtype)
    larger[: column.shape[0], shape[1] - column.shape[1] :] = column
    return larger


def wider(width: int, reach: float) -> int:
    """So many columns next: a quarter more, not twice, since every prompt ever seen pays for them."""
    return min(width + max(2, width // 4), max(math.ceil(min(reach, 2**40)), width + 1))
