"""Changes of estimators: a call changes all of them or nothing.

Ctrl-C raises a KeyboardInterrupt between any two operations. A call therefore computes its results first and changes
nothing. One assignment then makes them valid. A history is too large for a copy in every step: its rows are written
after that assignment, and whoever reads the estimator next repeats a write that was interrupted, as a database repeats
the entries of its log (`kaestat.history.columns.HistoryWrite`).
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from kaestat.core.arrays import Array
from kaestat.core.samples import StepSamples
from kaestat.estimator.reach import ReturnWatch
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.step import StepRecord

T = TypeVar("T")


@dataclass(eq=False)
class Call:
    """One call by a user, which may consist of calls of several estimators."""

    thread: int = field(default_factory=threading.get_ident)  # The user's thread
    finished: bool = False  # Whether the user has the result

    def finish(self, result: T) -> T:
        """The result of the call; returning it is the last act of the call.

        If an interrupt comes before, the user repeats the call. None can come after: Python checks for signals when a
        function starts, after a call of C code, and when a loop repeats.
        """
        self.finished = True
        return result


class Answer(NamedTuple):
    """The last call that recorded samples, "step" or "observe" by name, and its result, in arrays of its own."""

    call: Call
    name: str
    step: int
    samples: StepSamples
    advantages: np.ndarray
    values: np.ndarray

    def is_withheld(self, name: str, step: int, samples: StepSamples) -> bool:
        """Whether an interrupt withheld the result of this same call: the user may call again."""
        interrupted = not self.call.finished and self.call.thread == threading.get_ident()
        return interrupted and (self.name, self.step) == (name, step) and samples.same_as(self.samples)


class Current(NamedTuple):
    """Everything that changes in an estimator; `record` and `values` are as in `kaestat.AdvantageEstimator`."""

    state: EstimatorState
    returns: ReturnWatch
    record: StepRecord | None = None
    values: Array | None = None
    answer: Answer | None = None
    warned_alone: bool = False  # Whether a warning said that the method needs groups
    warned_far: bool = False  # Whether a warning named a reward far outside the others


@dataclass(eq=False)
class Commit:
    """Whether the results of a call are valid: one assignment, for all objects that the call changes."""

    made: bool = False


class _Pending(NamedTuple, Generic[T]):
    before: T
    after: T
    commit: Commit


class Cell(Generic[T]):
    """A value that changes when a commit is made, together with the values of other cells waiting for it."""

    def __init__(self, value: T):
        self._now: T | _Pending[T] = value

    @property
    def value(self) -> T:
        """The value that is valid now."""
        now = self._now
        if isinstance(now, _Pending):
            return now.after if now.commit.made else now.before
        return now

    def put(self, value: T) -> None:
        """Change the value at once."""
        self._now = value

    def wait(self, after: T, commit: Commit) -> None:
        """Change the value once the commit is made."""
        self._now = _Pending(self.value, after, commit)


class Change(NamedTuple):
    """What a call computes for one estimator before it changes anything."""

    cell: Cell[Current]  # The estimator's cell
    after: Current
    advantages: np.ndarray = np.zeros(0)  # of float64, shape (N,); for the call's samples; 0 where masked
    values: np.ndarray = np.zeros(0)  # of float64, shape (N,); for the call's samples; 0 where masked
    repeats: Call | None = None  # The interrupted call that already recorded the samples
    warnings: tuple[str, ...] = ()  # To give to the user once the change is made


def settle(cell: Cell[Current]) -> Current:
    """The valid state, after repeating any interrupted write; the caller must hold the lock."""
    current = cell.value
    write = current.state.write
    if write is not None:
        write.columns.carry_out(write)
        current = current._replace(state=replace(current.state, write=None))
    cell.put(current)
    return current


def changes_together(prepare: Callable[[], list[Change]]) -> list[Change]:
    """Changes computed by one call for several estimators; either all repeat the same earlier call, or none.

    A new call may share some samples with an interrupted one, such as one column of several rewards. Then
    ``prepare`` is called twice; it has no effect.
    """
    changes = prepare()
    if len({change.repeats for change in changes}) > 1:
        for change in changes:
            change.cell.put(settle(change.cell)._replace(answer=None))
        changes = prepare()
    return changes


def make_changes(changes: Sequence[Change], *, stacklevel: int = 3) -> None:
    """Change distinct estimators, all or none, and give their warnings; the caller must hold their locks.

    Warnings point to ``stacklevel``, as `warnings.warn` counts from here.
    """
    commit = Commit()
    for change in changes:
        change.cell.wait(change.after, commit)
    commit.made = True
    for change in changes:
        settle(change.cell)
    for change in changes:
        for text in change.warnings:
            warnings.warn(text, stacklevel=stacklevel)
