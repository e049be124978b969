"""The columns of a history, and the rule for adding more."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from kaestat.core.arrays import Visits
from kaestat.history.fields import NARROW_FIELDS, holding, padded
from kaestat.history.late_visits import push


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
    kept: np.ndarray | None  # shape (K, S); new contents of these rows of ``state``; None if they do not change
    shown: int  # New values of the columns' attributes
    last_step: int
    records: int


@dataclass(eq=False)
class Columns:
    """The right-aligned arrays of a `kaestat.RewardHistory`, and the part of them that is still needed."""

    horizon: float  # See `kaestat.RewardHistory`, also for ``last_step`` and ``records``
    max_visits: float
    late: int | None
    fields: dict[str, np.ndarray]  # shape (R, V) each; row 0 is empty
    state: np.ndarray  # of float32, shape (R, S); the numbers of each prompt in addition to its visits
    row: dict[Hashable, int] = field(default_factory=dict)  # The row of each prompt
    shown: int = 1  # Number of newest columns that the next step can reach; earlier ones are for late visits
    last_step: int = -1
    records: int = 0

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
        if write.kept is not None:
            write.state[write.rows] = write.kept
        self.row.update(write.keys)
        self.shown, self.last_step, self.records = write.shown, write.last_step, write.records

    def visits(self, rows: np.ndarray, step: int | np.ndarray, first: int = 0) -> Visits:
        """Visits of some rows as seen from a step, from column ``first`` to the last."""
        gathered = {name: np.take(field, rows, axis=0) for name, field in self.fields.items()}
        if first:
            gathered = {name: np.ascontiguousarray(taken[:, first:]) for name, taken in gathered.items()}
        lag = np.subtract(step, gathered.pop("step"), dtype=np.float64)
        sums = {name: taken.astype(np.float64, copy=False) for name, taken in gathered.items()}
        state = np.take(self.state, rows, axis=0) if self.state.shape[1] else None
        return Visits(lag=lag, **sums, state=state)

    def keep_newest(self, visits: float) -> None:
        """Look back that many newest visits of a prompt from now on; `keep_for_late` drops earlier ones."""
        self.max_visits, self.shown = visits, int(min(self.shown, visits))

    def keep_for_late(self, late: int | None) -> None:
        """Keep the past of visits up to so many steps late from now on; None for a history in order."""
        if late is None and self.shown < self.width:
            self.fields = {name: field[:, -self.shown :].copy() for name, field in self.fields.items()}
        self.late = late

    def part(self, rows: np.ndarray) -> Columns:
        """A copy of some rows as new columns, in that order; the caller may change them."""
        return replace(self, fields={name: np.take(field, rows, axis=0) for name, field in self.fields.items()})

    def append(self, *visits: Any) -> None:
        """Add a newest visit to some rows; parameters as `appended`."""
        self.carry_out(self.appended(*visits))

    def appended(
        self,
        keys: Sequence[Hashable],
        rows: np.ndarray,
        step: int | np.ndarray,
        sums: dict[str, np.ndarray],
        state: np.ndarray | None = None,
    ) -> HistoryWrite:
        """The write that adds a newest visit to some rows, without checks; the columns are unchanged.

        ``step`` is of all visits, or of each: as if every one were the last.
        """
        part = self.part(rows)
        part.make_room(np.arange(len(rows)), np.broadcast_to(step, rows.shape), step)
        part.retype(sums)
        push(part.fields, slice(None), step, sums)
        part.last_step = max(self.last_step, int(np.max(step)))
        return self.write(part, keys, rows, state)

    def write(self, part: Columns, keys: Sequence[Hashable], rows: np.ndarray, kept: np.ndarray | None) -> HistoryWrite:
        """The write that replaces some rows, 0 for new prompts, with the contents of a changed `part`."""
        new = np.flatnonzero(rows == 0)
        if len(new):
            rows = rows.copy()
            rows[new] = len(self.row) + 1 + np.arange(len(new))
        length, width = len(self.fields["step"]), part.width
        if (needed := len(self.row) + len(new) + 1) > length:
            length = max(needed, length + length // 8)
        fields, state = self.fields, self.state
        if (length, width) != fields["step"].shape:
            fields = {name: padded(field, (length, width)) for name, field in fields.items()}
        if any(fields[name].dtype != column.dtype for name, column in part.fields.items()):
            fields = {name: fields[name].astype(column.dtype, copy=False) for name, column in part.fields.items()}
        if length > len(state):
            state = padded(state, (length, state.shape[1]))
        named = dict(zip(map(keys.__getitem__, new.tolist()), rows[new].tolist(), strict=True))
        done = part.shown, part.last_step, self.records + 1
        return HistoryWrite(self, named, rows, fields, part.fields, state, kept, *done)

    def retype(self, numbers: dict[str, np.ndarray]) -> None:
        """Widen the types of columns if needed to hold some numbers exactly."""
        dtype, *others = {self.fields[name].dtype for name in NARROW_FIELDS}
        together = [numbers[name] for name in NARROW_FIELDS]
        if not others and holding(dtype, np.concatenate(together, axis=None)) == dtype:
            return  # the usual case, seen at one look
        for name in NARROW_FIELDS:
            column = self.fields[name]
            self.fields[name] = column.astype(holding(column.dtype, numbers[name]), copy=False)

    @property
    def first_kept(self) -> float:
        """The oldest step still needed by the next step, or by the latest completion allowed."""
        return self.last_step + (1 if self.late is None else -self.late) - self.horizon

    def make_room(self, rows: np.ndarray, step: np.ndarray, last_step: int | np.ndarray) -> None:
        """Widen the columns if a new visit in each of some rows would push out a needed one; shapes (K,).

        The columns visible to a step in order grow as they do without late visits, so that its sums round identically.
        """
        shown, width = self.shown, self.width
        if shown < self.max_visits:
            full, pushed_out = self._pushed_out(rows, step, width - shown)
            if (pushed_out >= np.broadcast_to(last_step, rows.shape)[full] + 1 - self.horizon).any():
                shown = int(min(_wider(shown, self.horizon), self.max_visits))
        if self.late is not None and self._late_visits_need(rows, step):
            width = _wider(width, self.horizon + self.late + 1)
        self.shown, width = shown, max(shown, width)
        if width > self.width:
            for name, field in self.fields.items():
                self.fields[name] = padded(field, (len(field), width))

    def _late_visits_need(self, rows: np.ndarray, step: np.ndarray) -> bool:
        """Whether a completion that is as late as may be reaches a visit that would be pushed out."""
        full, pushed_out = self._pushed_out(rows, step, 0)
        needed = pushed_out >= self.first_kept
        if needed.any() and self.width >= self.max_visits:
            # Not if as many visits as a value looks back come after it, and before whatever may come.
            most, late = int(self.max_visits), self.late or 0
            steps, new = self.fields["step"][rows[full], most - 1 : most + 1], step[full]
            last_of_most = np.maximum(steps[:, 0], new if steps.shape[1] == 1 else np.minimum(steps[:, 1], new))
            needed &= last_of_most >= self.last_step - late
        return bool(needed.any())

    def _pushed_out(self, rows: np.ndarray, step: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows that are full from ``column`` on, and the steps of the visits that new ones would push out there."""
        full = self.fields["count"][rows, column] > 0
        if not full.any():
            return full, np.zeros(0, dtype=np.intp)
        return full, np.minimum(self.fields["step"][rows[full], column], step[full])


def _wider(width: int, reach: float) -> int:
    """So many columns next: a quarter more, not twice, since every prompt ever seen pays for them."""
    return min(width + max(2, width // 4), max(math.ceil(min(reach, 2**40)), width + 1))
