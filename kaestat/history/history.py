"""The bounded record of past visits, which is all the state of most history baselines."""

import math
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Self

import numpy as np

from kaestat.core.arrays import Visits
from kaestat.core.checks import check_ids, whole_step
from kaestat.core.storage import encode_keys, load_state, reading, save_state
from kaestat.history.columns import Columns
from kaestat.history.fields import (
    PLAIN_FIELDS,
    WEIGHTED_FIELDS,
    checked_sums,
    dtype_of,
    stored_center,
    stored_columns,
    stored_numbers,
)


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
        names = [*PLAIN_FIELDS, *(WEIGHTED_FIELDS if weighted else ())]
        names += ["divergence"] if with_divergence else []
        self.columns = Columns(
            math.inf if isinstance(horizon, int) and horizon > sys.float_info.max else float(horizon),
            max_visits,
            {name: np.zeros((1, 1), dtype=dtype_of(name)) for name in names},
            np.zeros((1, state_size), dtype=np.float32),
        )

    def __len__(self) -> int:
        """Number of prompts seen."""
        return len(self.columns.row)

    @property
    def horizon(self) -> float:
        """The number of steps that a value looks back."""
        return self.columns.horizon

    @property
    def max_visits(self) -> float:
        """The largest number of a prompt's visits that a value looks back at."""
        return self.columns.max_visits

    @property
    def last_step(self) -> int:
        """Step of the newest visit, -1 for none since step 0: visits of a prior may have negative steps."""
        return self.columns.last_step

    @property
    def records(self) -> int:
        """Number of times that visits were recorded; results computed at an earlier number are out of date."""
        return self.columns.records

    @property
    def width(self) -> int:
        """Number of visit columns at present."""
        return self.columns.width

    @property
    def weighted(self) -> bool:
        """Whether weighted sums are kept."""
        return "weight" in self.columns.fields

    @property
    def with_divergence(self) -> bool:
        """Whether policy divergences are kept."""
        return "divergence" in self.columns.fields

    @property
    def state_size(self) -> int:
        """How many numbers are kept for each prompt in addition to its visits."""
        return self.columns.state.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without the ids."""
        return sum(field.nbytes for field in (*self.columns.fields.values(), self.columns.state))

    def visits(self, keys: Sequence[Hashable], step: int) -> Visits:
        """Past visits of ``keys`` as seen from ``step``; shape (P, V).

        Raises
        ------
        ValueError
            If a key was visited at ``step`` or later: a value must not use its own step or the future.
        """
        rows = self.rows(keys)
        seen = self.columns.fields["count"][rows, -1] > 0
        if (seen & (self.columns.fields["step"][rows, -1] >= step)).any():
            raise ValueError(f"step {step} is not after the last visit of every prompt asked for; visits are the past.")
        return self.columns.visits(rows, step)

    def rows(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Row of each key, 0 for an unknown key."""
        return self.columns.rows(keys)

    def newest_step(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Step of the newest visit of each key, -1 for an unknown key; shape (P,)."""
        rows = self.rows(keys)
        return np.where(self.columns.fields["count"][rows, -1] > 0, self.columns.fields["step"][rows, -1], -1)

    def newest(self, visits: int, most: int) -> dict[str, np.ndarray]:
        """The newest visits of prompts, newest last: ``step, count, total, total_sq``, shape (P, ``visits``) each.

        With the weighted sums if they are kept.
        The rows are all known prompts, or every k-th, so that there are at most ``most``. If a prompt has fewer visits,
        its first columns have count 0.
        """
        rows = slice(1, len(self.columns.row) + 1, max(1, math.ceil(len(self.columns.row) / most)))
        names = (*PLAIN_FIELDS, *(WEIGHTED_FIELDS if self.weighted else ()))
        wanted = {name: self.columns.fields[name][rows, -visits:].astype(np.float64) for name in names}
        missing = visits - min(visits, self.width)
        return {name: np.pad(field, ((0, 0), (missing, 0))) for name, field in wanted.items()} if missing else wanted

    def check_new(self, keys: Sequence[Hashable], rows: np.ndarray, step: int) -> None:
        """Raise unless ``step`` can be recorded for ``keys``.

        Raises
        ------
        ValueError
            If the step goes backwards, or a key is already recorded at this step.
        """
        if step < self.last_step:
            raise ValueError(
                f"step went backwards: got {step} after {self.last_step}. To resume or replay from step {step}, load "
                "the state that was saved before it."
            )
        newest_step, newest_count = self.columns.fields["step"][rows, -1], self.columns.fields["count"][rows, -1]
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
            ``count, total, total_sq`` and all other sums of this history. Keys with count 0 are skipped.

        Raises
        ------
        ValueError
            If the sums are not those of this history, a key occurs twice, or `check_new` raises an error. The history
            is then unchanged.
        TypeError
            If a key is not hashable, or a sum is not a number.
        """
        keys, step = check_ids("keys", keys), whole_step(step)
        expected = set(self.columns.fields) - {"step"}
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
        self.columns.carry_out(self.columns.appended(keys, rows, step, columns))

    def state_dict(self) -> dict[str, Any]:
        """The whole state as plain data and NumPy arrays (copies)."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that returns `state_dict` as of now. It encodes the ids, which takes longest."""
        columns, size = self.columns, len(self)
        plain: dict[str, Any] = {
            "horizon": columns.horizon,
            "max_visits": columns.max_visits,
            "last_step": columns.last_step,
            "center": columns.center,
            "fields": {name: column[1 : size + 1].copy() for name, column in columns.fields.items()},
            "numbers": columns.state[1 : size + 1].copy() if self.state_size else None,
        }
        row = columns.row
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
        weighted, with_divergence = "weight" in fields, "divergence" in fields
        limits = {"max_visits": state["max_visits"], **options}
        history = cls(state["horizon"], weighted=weighted, with_divergence=with_divergence, **limits)
        columns, size = history.columns, len(row)
        if set(fields) != set(columns.fields):
            raise ValueError("state: the fields of the history do not fit together; the state is corrupted.")
        numbers = stored_numbers(state.get("numbers"), size)
        columns.state = _after_empty_row(numbers)
        if row:  # an empty array may claim any width
            columns.fields = {name: _after_empty_row(field) for name, field in fields.items()}
        columns.row, columns.last_step, columns.center = row, last_step, stored_center(state["center"])
        return history

    def save(self, path: Any) -> None:
        """Write the history to a file, atomically and without pickle."""
        save_state(path, {"history": self.state_dict()})

    @classmethod
    def load(cls, path: Any) -> Self:
        """The history in a file written by `save`.

        Raises
        ------
        ValueError
            If the file is damaged or holds something else.
        """
        state = load_state(path)
        if not isinstance(state.get("history"), dict):
            raise ValueError(f"{path}: holds no reward history.")
        return cls.from_state_dict(state["history"])


def _after_empty_row(field: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros((1, field.shape[1]), dtype=field.dtype), field])
