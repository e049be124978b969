"""The columns of a history, and when there must be more of them."""

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
    """New contents of some rows of a history, computed before any of them is written.

    The contents are absolute: a write that was interrupted and is then repeated leaves what one whole write leaves.

    Attributes
    ----------
    columns : Columns
        `Columns.carry_out` changes them.
    keys : dict of hashables to int
        New prompts and their rows.
    rows : ndarray of int, shape (K,)
        Rows that change.
    fields : dict of ndarray, shape (R, V) each
        The columns; new arrays, with their present contents, where they had to grow.
    blocks : dict of ndarray, shape (K, V) each
        New contents of the rows.
    state : ndarray, shape (R, S)
        Like ``fields``: the numbers of each prompt beside its visits.
    kept : ndarray, shape (K, S), or None
        New contents of its rows; None if they do not change.
    shown, last_step, records : int
        New values of the columns' attributes.
    """

    columns: Columns
    keys: dict[Hashable, int]
    rows: np.ndarray
    fields: dict[str, np.ndarray]
    blocks: dict[str, np.ndarray]
    state: np.ndarray
    kept: np.ndarray | None
    shown: int
    last_step: int
    records: int


@dataclass(eq=False)
class Columns:
    """The arrays of a `kaestat.RewardHistory`, right-aligned, and what of them is needed yet.

    Attributes
    ----------
    horizon, max_visits, late
        See `kaestat.RewardHistory`; so are ``last_step`` and ``records``.
    fields : dict of ndarray, shape (R, V) each
        Row 0 is empty.
    state : ndarray of float32, shape (R, S)
        The numbers of each prompt beside its visits.
    row : dict of hashables to int
        The row of each prompt.
    shown : int
        Newest columns, which hold all that a step after the last reaches; those before are for late visits.
    """

    horizon: float
    max_visits: float
    late: int | None
    fields: dict[str, np.ndarray]
    state: np.ndarray
    row: dict[Hashable, int] = field(default_factory=dict)
    shown: int = 1
    last_step: int = -1
    records: int = 0

    @property
    def width(self) -> int:
        """Number of visit columns at present."""
        return self.fields["step"].shape[1]

    def rows(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Row of each key, 0 for a key never seen."""
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
        """Visits of some rows as seen from a step, of the columns from ``first`` on."""
        gathered = {name: np.take(field, rows, axis=0) for name, field in self.fields.items()}
        if first:
            gathered = {name: np.ascontiguousarray(taken[:, first:]) for name, taken in gathered.items()}
        lag = np.subtract(step, gathered.pop("step"), dtype=np.float64)
        sums = {name: taken.astype(np.float64, copy=False) for name, taken in gathered.items()}
        state = np.take(self.state, rows, axis=0) if self.state.shape[1] else None
        return Visits(lag=lag, **sums, state=state)

    def keep_newest(self, visits: float) -> None:
        """From now on look back that many newest visits of a prompt; `keep_for_late` drops those before."""
        self.max_visits, self.shown = visits, int(min(self.shown, visits))

    def keep_for_late(self, late: int | None) -> None:
        """From now on keep what visits that come late by so many steps reach; None for a history in order."""
        if late is None and self.shown < self.width:
            self.fields = {name: field[:, -self.shown :].copy() for name, field in self.fields.items()}
        self.late = late

    def part(self, rows: np.ndarray) -> Columns:
        """Columns whose k-th row is a copy of the k-th of some rows: the caller may change them."""
        return replace(self, fields={name: np.take(field, rows, axis=0) for name, field in self.fields.items()})

    def append(self, *visits: Any) -> None:
        """Add a newest visit to some rows; parameters as `appended`."""
        self.carry_out(self.appended(*visits))

    def appended(
        self,
        keys: Sequence[Hashable],
        rows: np.ndarray,
        step: int,
        sums: dict[str, np.ndarray],
        state: np.ndarray | None = None,
    ) -> HistoryWrite:
        """The write of a newest visit to some rows, without checks; the columns are unchanged."""
        part = self.part(rows)
        part.make_room(np.arange(len(rows)), np.broadcast_to(step, rows.shape), step)
        part.retype(sums)
        push(part.fields, slice(None), step, sums)
        part.last_step = max(self.last_step, step)
        return self.write(part, keys, rows, state)

    def write(self, part: Columns, keys: Sequence[Hashable], rows: np.ndarray, kept: np.ndarray | None) -> HistoryWrite:
        """The write that gives some rows, 0 for new prompts, the contents of a changed `part`."""
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
        """Widen the type of columns, if need be, so that they hold some numbers exactly."""
        for name in NARROW_FIELDS:
            column = self.fields[name]
            self.fields[name] = column.astype(holding(column.dtype, numbers[name]), copy=False)

    @property
    def first_kept(self) -> float:
        """The oldest step that the step after the last reaches, or a completion that is as late as may be."""
        return self.last_step + (1 if self.late is None else -self.late) - self.horizon

    def make_room(self, rows: np.ndarray, step: np.ndarray, last_step: int) -> None:
        """Widen if a new visit of each of some rows would push out one that is needed yet; shapes (K,).

        The columns that a step in order is shown grow as they do without late visits, so that its sums round alike.
        """
        shown, width = self.shown, self.width
        if shown < self.max_visits:
            _, pushed_out = self._pushed_out(rows, step, width - shown)
            if (pushed_out >= last_step + 1 - self.horizon).any():
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
