"""The columns of a history, and when there must be more of them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import repeat

import numpy as np

from kaestat.history_fields import padded


class HistoryColumns:
    """The arrays of a `kaestat.RewardHistory`, right-aligned, and what of them is needed yet.

    Attributes
    ----------
    horizon : float
    max_visits : float
    late : int or None
        See `kaestat.RewardHistory`.
    last_step : int
    """

    horizon: float
    max_visits: float
    late: int | None
    last_step: int
    _row: dict[Hashable, int]
    _fields: dict[str, np.ndarray]
    _state: np.ndarray
    _shown: int  # newest columns, which hold all that a step after the last reaches; those before are for late visits

    @property
    def width(self) -> int:
        """Number of visit columns at present."""
        return self._fields["step"].shape[1]

    def rows(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Row of each key, 0 for a key never seen."""
        return np.fromiter(map(self._row.get, keys, repeat(0)), dtype=np.intp, count=len(keys))

    @property
    def _first_kept(self) -> float:
        """The oldest step that the step after the last reaches, or a completion that is as late as may be."""
        return self.last_step + (1 if self.late is None else -self.late) - self.horizon

    def _make_room(self, rows: np.ndarray, step: np.ndarray, last_step: int) -> None:
        """Widen if a new visit of each of some rows would push out one that is needed yet; shapes (K,).

        The columns that a step in order is shown grow as they do without late visits, so that its sums round alike.
        """
        shown, width = self._shown, self.width
        if shown < self.max_visits:
            _, pushed_out = self._pushed_out(rows, step, width - shown)
            if (pushed_out >= last_step + 1 - self.horizon).any():
                shown = int(min(_wider(shown, self.horizon), self.max_visits))
        if self.late is not None and self._late_visits_need(rows, step):
            width = _wider(width, self.horizon + self.late + 1)
        self._shown, width = shown, max(shown, width)
        if width > self.width:
            for name, field in self._fields.items():
                self._fields[name] = padded(field, (len(field), width))

    def _late_visits_need(self, rows: np.ndarray, step: np.ndarray) -> bool:
        """Whether a completion that is as late as may be reaches a visit that would be pushed out."""
        full, pushed_out = self._pushed_out(rows, step, 0)
        needed = pushed_out >= self._first_kept
        if needed.any() and self.width >= self.max_visits:
            # Not if as many visits as a value looks back come after it, and before whatever may come.
            most, late = int(self.max_visits), self.late or 0
            steps, new = self._fields["step"][rows[full], most - 1 : most + 1], step[full]
            last_of_most = np.maximum(steps[:, 0], new if steps.shape[1] == 1 else np.minimum(steps[:, 1], new))
            needed &= last_of_most >= self.last_step - late
        return bool(needed.any())

    def _pushed_out(self, rows: np.ndarray, step: np.ndarray, column: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows that are full from ``column`` on, and the steps of the visits that new ones would push out there."""
        full = self._fields["count"][rows, column] > 0
        if not full.any():
            return full, np.zeros(0, dtype=np.intp)
        return full, np.minimum(self._fields["step"][rows[full], column], step[full])

    def _reserve(self, rows: int) -> None:
        capacity = len(self._fields["step"])
        if rows > capacity:
            grown = max(rows, capacity + capacity // 8)
            for name, field in self._fields.items():
                self._fields[name] = padded(field, (grown, field.shape[1]))
            self._state = padded(self._state, (grown, self._state.shape[1]))


def _wider(width: int, reach: float) -> int:
    """So many columns next: a quarter more, not twice, since every prompt ever seen pays for them."""
    return min(width + max(2, width // 4), max(math.ceil(min(reach, 2**40)), width + 1))
