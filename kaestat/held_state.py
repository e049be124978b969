"""What an estimator holds between two calls, and how a call changes it: in one assignment, or not at all.

A call that is interrupted (Ctrl-C raises a KeyboardInterrupt between any two operations) leaves what it found, or all
that it was to leave. So a call works out everything first, and its last act is one assignment. Arrays that are too
large for a copy in every step are changed after it: what is to be written into them is part of what has been assigned
(`kaestat.history_columns.HistoryWrite`), and is written again, in full, by whoever comes next if it was interrupted.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from kaestat.arrays import Array
from kaestat.estimator_state import EstimatorState
from kaestat.history import RewardHistory
from kaestat.history_delta import HistoryDelta
from kaestat.locked import Locked
from kaestat.reach import ReturnWatch
from kaestat.record import StepRecord
from kaestat.samples import StepSamples
from kaestat.steps.serving import Outcome

GivenT = TypeVar("GivenT")


@dataclass(eq=False)
class Call:
    """One call of a caller, of one estimator or of several that stand for one.

    Attributes
    ----------
    thread : int
        Of the caller.
    finished : bool
        Whether it has come to its end, so that the caller has what it gave.
    """

    thread: int = field(default_factory=threading.get_ident)
    finished: bool = False

    def finish(self, given: GivenT) -> GivenT:
        """What the caller is given, handed on as the last act of a call.

        An interrupt before it has the caller ask again. After it there is none: Python looks for signals where a
        function begins, after a call into C, and where a loop goes round.
        """
        self.finished = True
        return given


class Answer(NamedTuple):
    """What has been recorded by a call, and what it gave: if the caller did not get it, it will ask again.

    Attributes
    ----------
    call : Call
    name : str
        "step" or "observe".
    step : int
    samples : StepSamples
        With arrays of its own.
    outcome : Outcome
    """

    call: Call
    name: str
    step: int
    samples: StepSamples
    outcome: Outcome

    def is_to(self, name: str, samples: StepSamples, step: int) -> bool:
        """Whether a call was interrupted when all was done, and this is the same one again."""
        unheard = not self.call.finished and self.call.thread == threading.get_ident()
        return unheard and (self.name, self.step) == (name, step) and self.samples.same_as(samples)


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
        What is to be sent to other workers; None if nothing is.
    answer : Answer or None
        Of the last call that recorded something.
    """

    state: EstimatorState
    returns: ReturnWatch
    record: StepRecord | None = None
    values: Array | None = None
    deltas: tuple[HistoryDelta, ...] | None = None
    answer: Answer | None = None


@dataclass(eq=False)
class Decision:
    """Whether what several estimators have prepared holds: one assignment for all of them."""

    made: bool = False


class Undecided(NamedTuple):
    """What holds before a decision, and after it."""

    before: Held
    after: Held
    decision: Decision


class HoldsState(Locked):
    """What `kaestat.AdvantageEstimator` does with what it holds."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._swapped: Held | Undecided = held

    @property
    def _held(self) -> Held:
        """With everything written that is to be written; the lock must be held where a step may run beside."""
        held = self._swapped
        if isinstance(held, Undecided):
            held = held.after if held.decision.made else held.before
        write = held.state.write
        if write is not None:
            write.history.carry_out(write)
            held = held._replace(state=replace(held.state, write=None))
            self._swapped = held
        return held

    @property
    def _state(self) -> EstimatorState:
        return self._held.state

    @property
    def _keeps_deltas(self) -> bool:
        with self.lock:
            return self._held.deltas is not None

    @property
    def history(self) -> RewardHistory | None:
        """The record of past visits; None before the first step, and for memoryless methods."""
        with self.lock:
            return self._state.history

    @property
    def last_step(self) -> int:
        """The last step recorded; -1 before the first."""
        with self.lock:
            return self._state.last_step

    @property
    def record(self) -> StepRecord | None:
        """What the last `step` or `advantages` did; None before the first."""
        with self.lock:
            return self._held.record

    @property
    def values(self) -> Array | None:
        """Values of the samples of the last `step` or `advantages`; None before the first."""
        with self.lock:
            return self._held.values


class Change(NamedTuple):
    """What a call is to leave, and to give.

    Attributes
    ----------
    estimator : HoldsState
    before, after : Held
        What the estimator holds, without the call and with it.
    samples : StepSamples, optional
        Of the call, where it has some.
    outcome : Outcome, optional
    advantages : array, shape (N,), optional
        As the rewards were given.
    """

    estimator: HoldsState
    before: Held
    after: Held
    samples: StepSamples | None = None
    outcome: Outcome | None = None
    advantages: Any = None


def take_over(changes: Sequence[Change], decision: Decision | None = None) -> None:
    """Leave what a call of several estimators is to leave: all of it, or nothing.

    Parameters
    ----------
    changes : sequence of Change
        Of distinct estimators.
    decision : Decision, optional
        What else depends on it.
    """
    if len(changes) == 1 and decision is None:
        changes[0].estimator._swapped = changes[0].after
    else:
        decision = Decision() if decision is None else decision
        for change in changes:
            change.estimator._swapped = Undecided(change.before, change.after, decision)
        decision.made = True
    for change in changes:
        change.estimator._held  # noqa: B018  # writes
