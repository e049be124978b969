"""What a history does with visits that come in any order: late, in parts, and from other histories."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Self

import numpy as np

from kaestat.core.arrays import Visits
from kaestat.history.columns import HistoryColumns, HistoryWrite
from kaestat.history.delta import HistoryDelta
from kaestat.history.fields import NARROW_FIELDS
from kaestat.history.late_visits import add_to_columns, hidden, in_rounds, named, newest_of


class UnorderedHistory(HistoryColumns, ABC):
    """What `kaestat.RewardHistory` does with visits that come in any order."""

    @abstractmethod
    def visits_of_rows(self, rows: np.ndarray, step: int | np.ndarray, first: int = 0) -> Visits:
        """Visits of some rows as seen from a step, of the columns from ``first`` on."""

    def add(self, delta: HistoryDelta) -> None:
        """Add completions of any step, late ones among them: to the visit of that step, or as one in between.

        Whatever the order of such calls, and however the completions of a visit are spread over them, the visits are
        the same afterwards, up to the rounding of sums. Visits that no step after the last can reach, nor a completion
        that is ``late`` by as much as it may be, are left out.

        Parameters
        ----------
        delta : HistoryDelta
            With what this history keeps. None of its completions may have been recorded before.

        Raises
        ------
        ValueError
            If the delta has other sums, or the history keeps what cannot be added to: policy divergences between
            visits, or numbers of each prompt beside its visits. The history is then unchanged.
        """
        self.carry_out(self.added(delta))

    def added(self, delta: HistoryDelta) -> HistoryWrite:
        """The write of `add`, with the same errors; the history is unchanged."""
        if "divergence" in self._fields or self._state.shape[1]:
            raise ValueError(
                "a history with policy divergences, or with a state of each prompt, takes visits in order only."
            )
        if set(delta.sums) != set(self._fields) - {"step"}:
            raise ValueError(
                f"this history keeps {', '.join(sorted(set(self._fields) - {'step'}))}; the delta has "
                f"{', '.join(sorted(delta.sums))}."
            )
        rows = self.rows(delta.keys)
        part = self._part(rows)
        part.last_step = max(self.last_step, delta.last_step, int(delta.step.max(initial=-1)))
        kept = delta.step >= part._first_kept
        row, step = delta.row[kept], delta.step[kept]
        sums = {name: column[kept] for name, column in delta.sums.items()}
        for name in NARROW_FIELDS:
            part._fields[name] = part._fields[name].astype(np.float64)  # until the sums are known
        for turn in in_rounds(row, step):
            part._add_turn(row[turn], step[turn], {name: column[turn] for name, column in sums.items()})
        summed, part._fields = part._fields, part._fields | {name: self._fields[name][:0] for name in NARROW_FIELDS}
        part._retyped(summed)
        part._fields = {name: column.astype(part._fields[name].dtype, copy=False) for name, column in summed.items()}
        return self._write(part, delta.keys, rows, None)

    def merge(self, other: Self) -> None:
        """Add all visits of another history, of other completions: associative and commutative, up to rounding.

        Raises
        ------
        ValueError
            As `add`.
        """
        self.add(other.as_delta())

    def as_delta(self) -> HistoryDelta:
        """All visits that are kept, as what an empty history would have to add."""
        size = len(self._row) + 1
        stored = self._fields["step"][:size]
        kept = (self._fields["count"][:size] > 0) & (stored >= self._first_kept)
        if self.late is not None and self.max_visits < math.inf:
            for_all = kept & (stored < self.last_step - self.late)  # whatever may come is after these
            kept &= newest_of(for_all, int(self.max_visits)) | ~for_all
        row, column = np.nonzero(kept)
        fields = {name: field[row, column] for name, field in self._fields.items()}
        step = fields.pop("step").astype(np.int64)
        sums = {name: field.astype(np.float64) for name, field in fields.items()}
        return HistoryDelta(list(self._row), row - 1, step, sums, self.last_step)

    def visits_known(
        self, rows: np.ndarray, steps: np.ndarray, without: tuple[np.ndarray, np.ndarray] | None = None
    ) -> Visits:
        """Visits at or before a step for each row, of a history that has been added to in any order.

        Parameters
        ----------
        rows : ndarray of int, shape (P,)
        steps : ndarray of int, shape (P,)
            As seen from there; visits at the step itself have lag 0.
        without : pair of ndarray of int, optional
            Positions in ``rows`` and steps of visits that are left out.

        Returns
        -------
        Visits
            Of those within the horizon alone, and of the newest ``max_visits`` of them, so that it does not matter in
            what order they came.
        """
        stored, count = (np.take(self._fields[name], rows, axis=0) for name in ("step", "count"))
        lag = np.subtract(steps[:, None], stored, dtype=np.float64)
        kept = (count > 0) & (lag >= 0) & (lag <= self.horizon) & (stored >= self._first_kept)
        if without is not None:
            kept &= ~named(lag, *without)
        if self.max_visits < math.inf:
            kept &= newest_of(kept & (lag > 0), int(self.max_visits)) | (lag == 0)
        before = self.width - self._shown
        first = 0 if kept[:, :before].any() else before
        return hidden(self.visits_of_rows(rows, steps[:, None], first), kept[:, first:])

    def _add_turn(self, row: np.ndarray, step: np.ndarray, sums: dict[str, np.ndarray]) -> None:
        """`add` for one visit of each row."""
        stored, here = self._fields["step"][row], self._fields["count"][row] > 0
        newer = np.sum(here & (stored > step[:, None]), axis=1)
        new = ~np.any(here & (stored == step[:, None]), axis=1)
        self._make_room(row[new], step[new], self.last_step)
        place = self.width - 1 - newer
        fits = place >= 0
        add_to_columns(
            self._fields, row[fits], place[fits], new[fits], step[fits], {n: c[fits] for n, c in sums.items()}
        )
