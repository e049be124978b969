"""The bounded record of past visits, the only state that the history baselines have."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kaestat.core.arrays import Visits
from kaestat.core.checks import check_ids, check_whole, whole_step
from kaestat.history.columns import HistoryWrite
from kaestat.history.fields import (
    PLAIN_FIELDS,
    SQUARED_FIELDS,
    WEIGHTED_FIELDS,
    checked_sums,
    dtype_of,
    stored_step,
    visit_sums,
)
from kaestat.history.late_visits import push
from kaestat.history.stored import StoredHistory
from kaestat.history.unordered import UnorderedHistory

__all__ = [
    "PLAIN_FIELDS",
    "SQUARED_FIELDS",
    "WEIGHTED_FIELDS",
    "RewardHistory",
    "stored_step",
    "visit_sums",
]


class RewardHistory(StoredHistory, UnorderedHistory):
    """Per-prompt sufficient statistics of past visits, oldest first, within a horizon of steps.

    Rows are prompts (or streams of a prompt), columns are visits, right-aligned: the newest visit stands in the last
    column, and unused columns have count 0. Row 0 is always empty and stands for prompts never seen. Memory is
    O(prompts x visits within the horizon): 10 bytes a visit where rewards are whole numbers, 22 otherwise, and 48 more
    where completions have weights, plus the ids.

    Parameters
    ----------
    horizon : float
        Steps that a value looks back. Visits that no later step can reach are dropped; ``inf`` keeps all.
    weighted : bool
        Keep the weighted sums as well.
    with_divergence : bool
        Keep the policy divergence since the visit before.
    max_visits : float
        Visits of a prompt that a value looks back at most, the newest; ``inf`` for no limit.
    state_size : int
        Numbers (of single precision) kept of each prompt beside its visits.
    late : int, optional
        For visits that come in any order (`add`): those are kept, too, that a step so many steps before the last can
        reach. None for a history that is recorded in order.

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
        late: int | None = None,
    ):
        number = isinstance(horizon, int | float | np.integer | np.floating) and not isinstance(horizon, bool)
        if not number or not horizon > 0:
            raise ValueError(f"horizon must be positive (steps), got {horizon!r}.")
        if isinstance(max_visits, bool) or not isinstance(max_visits, int | float) or not max_visits >= 1:
            raise ValueError(f"max_visits must be at least 1, got {max_visits!r}.")
        self.horizon = math.inf if isinstance(horizon, int) and horizon > sys.float_info.max else float(horizon)
        self.max_visits = max_visits
        self.late = None if late is None else check_whole("late", late, least=0)
        self.last_step = -1
        self.records = 0
        self._row: dict[Hashable, int] = {}
        self._shown = 1
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
    def nbytes(self) -> int:
        """Bytes in the arrays; the ids come on top."""
        return sum(field.nbytes for field in (*self._fields.values(), self._state))

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

    def visits_of_rows(self, rows: np.ndarray, step: int | np.ndarray, first: int = 0) -> Visits:
        """`visits` for rows already looked up, of the columns from ``first`` on."""
        gathered = {name: np.take(field, rows, axis=0) for name, field in self._fields.items()}
        if first:
            gathered = {name: np.ascontiguousarray(taken[:, first:]) for name, taken in gathered.items()}
        lag = np.subtract(step, gathered.pop("step"), dtype=np.float64)
        sums = {name: taken.astype(np.float64, copy=False) for name, taken in gathered.items()}
        state = np.take(self._state, rows, axis=0) if self._state.shape[1] else None
        return Visits(lag=lag, **sums, state=state)

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
        """`record` without checks, for rows already looked up."""
        self.carry_out(self.appended(keys, rows, step, columns, state))

    def appended(
        self,
        keys: Sequence[Hashable],
        rows: np.ndarray,
        step: int,
        columns: dict[str, np.ndarray],
        state: np.ndarray | None = None,
    ) -> HistoryWrite:
        """The write of `append`; the history is unchanged."""
        part = self._part(rows)
        part._make_room(np.arange(len(rows)), np.broadcast_to(step, rows.shape), step)
        part._retyped(columns)
        push(part._fields, slice(None), step, columns)
        part.last_step = max(self.last_step, step)
        return self._write(part, keys, rows, state)
