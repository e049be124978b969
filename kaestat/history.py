"""The bounded record of past visits, the only state that the history baselines have."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from kaestat.arrays import Visits
from kaestat.checks import check_ids
from kaestat.history_delta import HistoryDelta
from kaestat.history_fields import (
    MAX_REWARD,
    MAX_STEP,
    PLAIN_FIELDS,
    SQUARED_FIELDS,
    WEIGHTED_FIELDS,
    checked_sums,
    dtype_of,
    padded,
    stored_step,
    visit_sums,
    whole_step,
)
from kaestat.late_visits import add_to_columns, hidden, turns
from kaestat.stored_history import StoredHistory

__all__ = [
    "MAX_REWARD",
    "MAX_STEP",
    "PLAIN_FIELDS",
    "SQUARED_FIELDS",
    "WEIGHTED_FIELDS",
    "RewardHistory",
    "stored_step",
    "visit_sums",
    "whole_step",
]


class RewardHistory(StoredHistory):
    """Per-prompt sufficient statistics of past visits, oldest first, within a horizon of steps.

    Rows are prompts (or streams of a prompt), columns are visits, right-aligned: the newest visit stands in the last
    column, and unused columns have count 0. Row 0 is always empty and stands for prompts never seen. Memory is
    O(prompts x visits within the horizon): 24 bytes a visit, 72 where completions have weights, plus the ids.

    Parameters
    ----------
    horizon : float
        Visits that no later step can reach within this many steps are dropped; ``inf`` keeps all.
    weighted : bool
        Keep the weighted sums as well.
    with_divergence : bool
        Keep the policy divergence since the visit before.
    max_visits : float
        Visits of a prompt that are kept at most, the newest; ``inf`` for no limit.
    state_size : int
        Numbers (of single precision) kept of each prompt beside its visits.

    Attributes
    ----------
    last_step : int
        Of the newest visit, -1 for none since step 0: visits of a prior may stand at negative steps.
    records : int
        How many times visits were recorded in this object: what was computed of it is out of date if this has moved on.

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
        number = isinstance(horizon, int | float | np.integer | np.floating) and not isinstance(horizon, bool)
        if not number or not horizon > 0:
            raise ValueError(f"horizon must be positive (steps), got {horizon!r}.")
        if isinstance(max_visits, bool) or not isinstance(max_visits, int | float) or not max_visits >= 1:
            raise ValueError(f"max_visits must be at least 1, got {max_visits!r}.")
        self.horizon = math.inf if isinstance(horizon, int) and horizon > sys.float_info.max else float(horizon)
        self.max_visits = max_visits
        self.last_step = -1
        self.records = 0
        self._row: dict[Hashable, int] = {}
        self._state = np.zeros((1, state_size), dtype=np.float32)
        names = [*PLAIN_FIELDS, *((*WEIGHTED_FIELDS, *SQUARED_FIELDS) if weighted else ())]
        names += ["divergence"] if with_divergence else []
        self._fields: dict[str, np.ndarray] = {name: np.zeros((1, 1), dtype=dtype_of(name)) for name in names}

    def __len__(self) -> int:
        """Number of prompts seen."""
        return len(self._row)

    @property
    def weighted(self) -> bool:
        """Whether weighted sums are kept."""
        return "weight" in self._fields

    @property
    def with_divergence(self) -> bool:
        """Whether policy divergences are kept."""
        return "divergence" in self._fields

    @property
    def state_size(self) -> int:
        """Numbers kept of each prompt beside its visits."""
        return self._state.shape[1]

    @property
    def width(self) -> int:
        """Number of visit columns at present."""
        return self._fields["step"].shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes in the arrays; the ids come on top."""
        return sum(field.nbytes for field in (*self._fields.values(), self._state))

    def rows(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Row of each key, 0 for a key never seen."""
        return np.fromiter(map(self._row.get, keys, repeat(0)), dtype=np.intp, count=len(keys))

    def visits(self, keys: Sequence[Hashable], step: int) -> Visits:
        """Past visits of ``keys`` as seen from ``step``; shape (P, V).

        Raises
        ------
        ValueError
            If one of them was visited at ``step`` or later: a value must not see its own step or the future.
        """
        rows = self.rows(keys)
        seen = self._fields["count"][rows, -1] > 0
        if (seen & (self._fields["step"][rows, -1] >= step)).any():
            raise ValueError(f"step {step} is not after the last visit of every prompt asked for; visits are the past.")
        return self.visits_of_rows(rows, step)

    def visits_of_rows(self, rows: np.ndarray, step: int | np.ndarray) -> Visits:
        """`visits` for rows already looked up."""
        gathered = {name: np.take(field, rows, axis=0) for name, field in self._fields.items()}
        lag = np.subtract(step, gathered.pop("step"), dtype=np.float64)
        count = gathered.pop("count").astype(np.float64)
        state = np.take(self._state, rows, axis=0) if self._state.shape[1] else None
        return Visits(lag=lag, count=count, **gathered, state=state)

    def newest_step(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Step of the newest visit of each key, -1 for a key never seen; shape (P,)."""
        rows = self.rows(keys)
        return np.where(self._fields["count"][rows, -1] > 0, self._fields["step"][rows, -1], -1)

    def newest(self, visits: int, most: int) -> dict[str, np.ndarray]:
        """The newest visits of prompts, newest last: ``step, count, total, total_sq``, shape (P, ``visits``) each.

        With the weighted sums where they are kept.
        Of every prompt seen, or of every k-th, so that there are at most ``most``. Where a prompt has fewer visits, the
        first columns have count 0.
        """
        rows = slice(1, len(self._row) + 1, max(1, math.ceil(len(self._row) / most)))
        names = (*PLAIN_FIELDS, *(WEIGHTED_FIELDS if self.weighted else ()))
        wanted = {name: self._fields[name][rows, -visits:].astype(np.float64) for name in names}
        missing = visits - min(visits, self.width)
        return {name: np.pad(field, ((0, 0), (missing, 0))) for name, field in wanted.items()} if missing else wanted

    def check_new(self, keys: Sequence[Hashable], rows: np.ndarray, step: int) -> None:
        """Raise unless ``step`` can be recorded for ``keys``.

        Raises
        ------
        ValueError
            If the step goes backwards, or one of the keys has been recorded at this step.
        """
        if step < self.last_step:
            raise ValueError(
                f"step went backwards: got {step} after {self.last_step}. To resume or replay from step {step}, load "
                "the state that was saved before it."
            )
        newest_step, newest_count = self._fields["step"][rows, -1], self._fields["count"][rows, -1]
        again = (newest_step == step) & (newest_count > 0)
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
            ``count, total, total_sq`` and whatever else this history keeps. Keys with count 0 are skipped.

        Raises
        ------
        ValueError
            If the sums are not those this history keeps, a key comes twice, or `check_new` refuses. The history is
            then unchanged.
        TypeError
            If a key is not hashable, or a sum no number.
        """
        keys, step = check_ids("keys", keys), whole_step(step)
        expected = set(self._fields) - {"step"}
        if set(sums) != expected:
            raise ValueError(f"this history records {', '.join(sorted(expected))}; got {', '.join(sorted(sums))}.")
        columns = checked_sums(sums, len(keys))
        count = columns["count"]
        if len(set(keys)) < len(keys):
            raise ValueError("keys must be distinct: add up the completions of a prompt first.")
        rows = self.rows(keys)
        self.check_new(keys, rows, step)
        present = count > 0
        if not present.all():
            keys = [key for key, here in zip(keys, present, strict=True) if here]
            rows, columns = rows[present], {name: column[present] for name, column in columns.items()}
        self.append(keys, rows, step, columns)

    def append(
        self,
        keys: Sequence[Hashable],
        rows: np.ndarray,
        step: int,
        columns: dict[str, np.ndarray],
        state: np.ndarray | None = None,
    ) -> None:
        """`record` without checks, for rows already looked up; nothing fails once writing has begun."""
        new = np.flatnonzero(rows == 0)
        if len(new):
            rows = rows.copy()
            rows[new] = len(self._row) + 1 + np.arange(len(new))
            self._reserve(len(self._row) + len(new) + 1)
        oldest = self._fields["count"][rows, 0] > 0
        within = oldest.any() and (step + 1 - self._fields["step"][rows[oldest], 0] <= self.horizon).any()
        if within and self.width < self.max_visits:
            self._widen()
        for name, field in self._fields.items():
            shifted = np.take(field, rows, axis=0)
            in_line = shifted.reshape(-1)  # NumPy shifts one dimension in place, and two by way of a copy
            in_line[:-1] = in_line[1:]
            shifted[:, -1] = step if name == "step" else columns[name]
            field[rows] = shifted
        if state is not None:
            self._state[rows] = state
        self._row.update(zip(map(keys.__getitem__, new.tolist()), rows[new].tolist(), strict=True))
        self.last_step = max(self.last_step, step)
        self.records += 1

    def add(self, delta: HistoryDelta) -> None:
        """Add completions of any step, late ones among them: to the visit of that step, or as one in between.

        Whatever the order of such calls, and however the completions of a visit are spread over them, the visits are
        the same afterwards, up to the rounding of sums. Visits that no step after the last can reach are left out.

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
        if self.with_divergence or self.state_size:
            raise ValueError(
                "a history with policy divergences, or with a state of each prompt, takes visits in order only."
            )
        if set(delta.sums) != set(self._fields) - {"step"}:
            raise ValueError(
                f"this history keeps {', '.join(sorted(set(self._fields) - {'step'}))}; the delta has "
                f"{', '.join(sorted(delta.sums))}."
            )
        rows = self.rows(delta.keys)
        new = np.flatnonzero(rows == 0)
        rows[new] = len(self._row) + 1 + np.arange(len(new))
        self._reserve(len(self._row) + len(new) + 1)
        self._row.update(zip(map(delta.keys.__getitem__, new.tolist()), rows[new].tolist(), strict=True))
        self.last_step = max(self.last_step, delta.last_step, int(delta.step.max(initial=-1)))
        self.records += 1
        kept = delta.step >= self._first_kept
        row, step = rows[delta.row[kept]], delta.step[kept]
        sums = {name: column[kept] for name, column in delta.sums.items()}
        for turn in turns(row, step):
            self._add_turn(row[turn], step[turn], {name: column[turn] for name, column in sums.items()})

    def merge(self, other: RewardHistory) -> None:
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
        row, column = np.nonzero(self._fields["count"][:size])
        fields = {name: field[row, column] for name, field in self._fields.items()}
        step = fields.pop("step").astype(np.int64)
        kept = step >= self._first_kept
        sums = {name: field[kept].astype(np.float64) for name, field in fields.items()}
        return HistoryDelta(list(self._row), row[kept] - 1, step[kept], sums, self.last_step)

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
            Of those within the horizon alone, so that it does not matter in what order they came.
        """
        visits = self.visits_of_rows(rows, steps[:, None])
        step = self._fields["step"][rows]
        return hidden(visits, (visits.lag >= 0) & (visits.lag <= self.horizon) & (step >= self._first_kept), without)

    @property
    def _first_kept(self) -> float:
        """The oldest step that the step after the last reaches."""
        return self.last_step + 1 - self.horizon

    def _add_turn(self, row: np.ndarray, step: np.ndarray, sums: dict[str, np.ndarray]) -> None:
        """`add` for one visit of each row."""
        stored, here = self._fields["step"][row], self._fields["count"][row] > 0
        newer = np.sum(here & (stored > step[:, None]), axis=1)
        new = ~np.any(here & (stored == step[:, None]), axis=1)
        full = new & here[:, 0]
        oldest = np.minimum(stored[:, 0], step)[full]
        if self.width < self.max_visits and (oldest >= self._first_kept).any():
            self._widen()
        place = self.width - 1 - newer
        fits = place >= 0
        add_to_columns(
            self._fields, row[fits], place[fits], new[fits], step[fits], {n: c[fits] for n, c in sums.items()}
        )

    def _reserve(self, rows: int) -> None:
        capacity = len(self._fields["step"])
        if rows > capacity:
            grown = max(rows, capacity + capacity // 8)
            for name, field in self._fields.items():
                self._fields[name] = padded(field, (grown, field.shape[1]))
            self._state = padded(self._state, (grown, self._state.shape[1]))

    def _widen(self) -> None:
        # By a quarter, not double: columns are paid for by every prompt ever seen.
        most = int(min(max(math.ceil(min(self.horizon, 2**40)), self.width + 1), self.max_visits))
        width = min(self.width + max(2, self.width // 4), most)
        for name, field in self._fields.items():
            self._fields[name] = padded(field, (len(field), width))
