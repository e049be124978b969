"""What an estimator holds between two calls, and how a call changes it: as a whole, or not at all.

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
from kaestat.core.locked import Locked
from kaestat.core.samples import StepSamples
from kaestat.estimator.reach import ReturnWatch
from kaestat.estimator.record import StepRecord
from kaestat.estimator.state import EstimatorState
from kaestat.history.delta import HistoryDelta
from kaestat.history.history import RewardHistory

T = TypeVar("T")


@dataclass(eq=False)
class Call:
    """One call by a user, which may make calls of several estimators.

    Attributes
    ----------
    thread : int
        The user's thread.
    parts : int
        Number of calls of single estimators that it makes.
    finished : bool
        Whether the user has the result.
    """

    thread: int = field(default_factory=threading.get_ident)
    parts: int = 1
    finished: bool = False

    def finish(self, result: T) -> T:
        """Return the result; the last act of a call.

        If an interrupt comes before, the user repeats the call. None comes after: Python looks for signals where a
        function begins, after a call of C code, and where a loop starts again.
        """
        self.finished = True
        return result


class Answer(NamedTuple):
    """The last call that recorded samples, and its result.

    Attributes
    ----------
    call : Call
    name : str
        "step" or "observe".
    step : int
    samples : StepSamples
        With arrays of their own.
    advantages, values : ndarray of float64, shape (N,)
    """

    call: Call
    name: str
    step: int
    samples: StepSamples
    advantages: np.ndarray
    values: np.ndarray

    def is_repeated(self, name: str, samples: StepSamples, step: int) -> bool:
        """Whether the user makes the same call again because an interrupt has kept its result back."""
        interrupted = not self.call.finished and self.call.thread == threading.get_ident()
        return interrupted and (self.name, self.step) == (name, step) and self.samples.same_as(samples)


class Held(NamedTuple):
    """What an estimator holds.

    Attributes
    ----------
    state : EstimatorState
    returns : ReturnWatch
    record : StepRecord or None
    values : array or None
        See `kaestat.AdvantageEstimator`.
    deltas : tuple of HistoryDelta, or None
        Recorded since the last `take_delta`; None if the estimator does not keep them.
    answer : Answer or None
    told_late : bool
        Whether a warning about late completions has been given.
    """

    state: EstimatorState
    returns: ReturnWatch
    record: StepRecord | None = None
    values: Array | None = None
    deltas: tuple[HistoryDelta, ...] | None = None
    answer: Answer | None = None
    told_late: bool = False


@dataclass(eq=False)
class Commit:
    """Whether the results of a call are valid: one assignment, however many objects the call changes."""

    made: bool = False


class Pending(NamedTuple, Generic[T]):
    """A value before and after a commit."""

    before: T
    after: T
    commit: Commit

    @property
    def valid(self) -> T:
        """The one that counts now."""
        return self.after if self.commit.made else self.before


class Change(NamedTuple):
    """What a call computes for one estimator, before it changes anything.

    Attributes
    ----------
    estimator : HoldsState
    before, after : Held
    advantages, values : ndarray of float64, shape (N,), optional
        Of the call's samples; 0 where masked.
    repeats : Call, optional
        The interrupted call that recorded the samples already.
    warnings : tuple of str
        For the user, once the change is made.
    """

    estimator: HoldsState
    before: Held
    after: Held
    advantages: np.ndarray = np.zeros(0)
    values: np.ndarray = np.zeros(0)
    repeats: Call | None = None
    warnings: tuple[str, ...] = ()


class HoldsState(Locked):
    """The part of `kaestat.AdvantageEstimator` that holds its state."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._swapped: Held | Pending[Held] = held

    def settle(self) -> Held:
        """What is valid now, after a repeat of any write that was interrupted; for callers that have the lock."""
        held = self._swapped.valid if isinstance(self._swapped, Pending) else self._swapped
        write = held.state.write
        if write is not None:
            write.history.carry_out(write)
            held = held._replace(state=replace(held.state, write=None))
        self._swapped = held
        return held

    def forget_answer(self) -> None:
        """Take the next call for another one than the last, whatever its arguments."""
        self._swapped = self.settle()._replace(answer=None)

    @property
    def _state(self) -> EstimatorState:
        with self.lock:
            return self.settle().state

    @property
    def history(self) -> RewardHistory | None:
        """The record of past visits; None before the first step, and for memoryless methods."""
        return self._state.history

    @property
    def last_step(self) -> int:
        """The last step recorded; -1 before the first."""
        return self._state.last_step

    @property
    def record(self) -> StepRecord | None:
        """What the last `step` or `advantages` did; None before the first."""
        with self.lock:
            return self.settle().record

    @property
    def values(self) -> Array | None:
        """Values of the samples of the last `step` or `advantages`; None before the first."""
        with self.lock:
            return self.settle().values


def changes_together(call: Call, prepare: Callable[[], list[Change]]) -> list[Change]:
    """What a call computes for several estimators, all of which repeat the same earlier call, or none.

    Another call may have some samples in common with an interrupted one, such as one column of several rewards.

    Parameters
    ----------
    call : Call
    prepare : callable
        Computes the changes; without an effect, so that it can be called twice.
    """
    changes = prepare()
    call.parts = len(changes)
    repeated = {change.repeats for change in changes}
    before = next(iter(repeated))
    if len(repeated) > 1 or (before is not None and before.parts != call.parts):
        for change in changes:
            change.estimator.forget_answer()
        changes = prepare()
    return changes


def make_changes(changes: Sequence[Change], commit: Commit | None = None, *, stacklevel: int = 3) -> None:
    """Change several estimators, all of them or none, and give their warnings.

    Parameters
    ----------
    changes : sequence of Change
        Of distinct estimators, whose locks the caller has.
    commit : Commit, optional
        One that other objects wait for as well.
    stacklevel : int
        Where warnings point to, seen from here; as `warnings.warn` counts.
    """
    commit = Commit() if commit is None else commit
    for change in changes:
        change.estimator._swapped = Pending(change.before, change.after, commit)
    commit.made = True
    for change in changes:
        change.estimator.settle()
    for change in changes:
        for text in change.warnings:
            warnings.warn(text, stacklevel=stacklevel)
