"""An estimator for steps in any order: completions of any policy version, in any order and in parts.

A history consists of sums over visits, so a late completion is added to the visit of the policy that sampled it. What
a value uses never contains the completion's own reward:

- the completions of a call are new, and those of a prompt form one group, each left out of its own value; completions
  that earlier calls recorded under the newest version among them belong to the group as well;
- its past is what has been recorded under versions before that;
- where completions may have been recorded before (`AsynchronousEstimator.advantages`), the visits that could hold them
  are left out.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np

from kaestat.asynchronous.delta import HistoryDelta, RecordedVisits, common_inputs
from kaestat.asynchronous.late_history import LateHistory
from kaestat.asynchronous.received_deltas import Origin, Received
from kaestat.asynchronous.recent_scores import scores_before, visits_to_keep
from kaestat.asynchronous.visit_completions import completions_of, joined, split_now
from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.arrays import Array, Groups, Visits, visit_sums
from kaestat.core.checks import MAX_STEP, check_whole
from kaestat.core.samples import Packing, Samples, is_weighted
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.step import Batch, StepRecord, compute, group
from kaestat.history.prior import Prior

NO_SENDER = 0, ""
LEAST_ALLOWANCE = 16  # steps; the limits that asynchronous trainers set are mostly below
OTHERS = "one that computes from the visits, such as kae, kae_eb, kalman, local_linear or sieve"


@dataclass(frozen=True, eq=False)
class AsynchronousState(EstimatorState):
    """What an `AsynchronousEstimator` knows in addition."""

    received: Received = field(default_factory=Received)  # The numbered deltas that it has, including its own
    pending: HistoryDelta = field(default_factory=HistoryDelta)  # To send
    # Scores of candidate bandwidths by step, as far as computed; they follow from the visits
    scores: dict[int, Any] = field(default_factory=dict)

    def snapshot(self, method: str) -> Callable[[], dict[str, Any]]:
        """As of the base class."""
        plain, received, pending = super().snapshot(method), self.received, self.pending
        return lambda: plain() | {"received": received.plain(), "pending": pending.plain()}


class AsynchronousEstimator(AdvantageEstimator):
    """An `AdvantageEstimator` for late rewards, completions of several policy versions, and several workers.

    Completions of a prompt may come in several calls, in any order. Parameters are those of `AdvantageEstimator`, and:

    Parameters
    ----------
    late : int, optional
        The number of steps by which completions may come after the newest and still find the whole past that they
        would have had in order. Memory grows as if the horizon were longer by this number. None for as many as the
        method looks back (in steps, or in visits if visits are limited), at least 16. The first completion that is even
        later triggers a warning, since part of its history is gone.
    keep_deltas : bool
        Keep what is recorded until `take_delta` returns it for other workers.

    Raises
    ------
    ValueError
        As `AdvantageEstimator`, and for a method that needs steps in order.

    Examples
    --------
    >>> estimator = AsynchronousEstimator("kae", bandwidth=10)
    >>> _ = estimator.step(["a", "a"], [1.0, 0.0], 3)
    >>> estimator.step(["a"], [1.0], 4, version=[2]).tolist()  # sampled by the policy of step 2
    [1.0]
    """

    order: ClassVar[str] = "any"

    def __init__(
        self,
        method: str | Baseline = DEFAULT_METHOD,
        *,
        late: int | None = None,
        keep_deltas: bool = False,
        prior: Prior | Mapping[Hashable, tuple[float, int]] | str | os.PathLike[str] | None = None,
        **options: Any,
    ):
        self.keep_deltas, self._asked_late, self._sender = keep_deltas, late, NO_SENDER
        if late is not None:
            check_whole("late", late, least=0, most=MAX_STEP)
        super().__init__(method, prior=prior, **options)
        if self.baseline.in_order_only:
            instead = "give it a constant rho=" if self.baseline.takes_divergence else f"take {OTHERS}"
            raise ValueError(
                f"method: {self.method!r} keeps a running state, so steps must come in order; {instead}, or "
                "kaestat.AdvantageEstimator."
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy sends under a name of its own."""
        vars(self).update(state)
        self._sender = NO_SENDER

    def _described(self) -> str:
        late = "" if self._asked_late is None else f", late={self._asked_late}"
        return f"{self.plan}{late}{', keep_deltas=True' if self.keep_deltas else ''}"

    @property
    def late(self) -> int:
        """The number of steps by which completions may be late."""
        if self._asked_late is not None:
            return self._asked_late
        # Of a policy that is further back than the baseline looks, nothing can be said about the present one.
        reach = min(self.baseline.horizon, self.baseline.max_visits, MAX_STEP)
        return max(math.ceil(reach), LEAST_ALLOWANCE) if reach < MAX_STEP else LEAST_ALLOWANCE

    @property
    def received(self) -> Received:
        """The numbers of all deltas in this estimator, including its own."""
        state: Any = self.state
        received: Received = state.received
        return received

    def step(  # type: ignore[override]  # versions in place of divergences, which belong to steps in order
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[float],
        step: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
        importance: Array | Sequence[float] | None = None,
        version: Array | Sequence[int] | None = None,
    ) -> Array:
        """Advantages of completions, which become part of the past of later steps.

        Parameters
        ----------
        prompt_ids, rewards, mask, stream_ids, weights, importance
            As in `AdvantageEstimator.step`. A prompt may come in several calls with different completions.
        step : int
            Present training step; it may be smaller than that of earlier calls.
        version : array of int, shape (N,), optional
            The step of the policy that sampled each completion, at most ``step``; None for ``step`` itself. The
            completion is recorded under it. A prompt's completions in one call are one group. Completions that earlier
            calls recorded under the group's newest version belong to the group too; those recorded under older versions
            are its past.

        Returns
        -------
        array, shape (N,)
            As `AdvantageEstimator.step`.

        Raises
        ------
        ValueError, TypeError
            As `AdvantageEstimator.step`, but for the order of steps; and for a version after the step.

        Warns
        -----
        UserWarning
            As `AdvantageEstimator.step`; once if completions are later than ``late``.
        """
        optional = {"weights": weights, "importance": importance, "version": version}
        after, advantages = self.computed("step", step, optional, prompt_ids, rewards, mask, stream_ids)
        self.shared.states = {**self.shared.states, self.name: after}
        return advantages  # at once, as in the base class

    def observe(  # type: ignore[override]
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[float],
        step: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
        importance: Array | Sequence[float] | None = None,
        version: Array | Sequence[int] | None = None,
    ) -> None:
        """Record completions without advantages; parameters and errors as in `step`. Each completion comes once."""
        optional = {"weights": weights, "importance": importance, "version": version}
        after, _ = self.computed("observe", step, optional, prompt_ids, rewards, mask, stream_ids)
        self.shared.states = {**self.shared.states, self.name: after}

    def advantages(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[float],
        now: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
        importance: Array | Sequence[float] | None = None,
        version: Array | Sequence[int] | None = None,
    ) -> Array:
        """Advantages of completions that may be recorded already; records nothing.

        For rewards that are recorded as they arrive (`observe`) and trained on later. The history's visits of a prompt
        at the given versions may contain these same completions, so the completions of the call replace them.

        Parameters
        ----------
        prompt_ids, rewards, mask, stream_ids, weights, importance
            As in `step`.
        now : int
            Present training step.
        version : array of int, shape (N,), optional
            The version that each completion was recorded under, as in `step`. Any other version would let its own
            reward into its value.

        Returns
        -------
        array, shape (N,)
            As `step`; `values` and `record` are those of this call then.

        Raises
        ------
        ValueError, TypeError
            As `step`.
        """
        optional = {"weights": weights, "importance": importance, "version": version}
        after, advantages = self.computed("advantages", now, optional, prompt_ids, rewards, mask, stream_ids)
        self.shared.states = {**self.shared.states, self.name: after}
        return advantages

    def merge(self, delta: HistoryDelta) -> None:
        """Add what others recorded: associative and commutative, up to the rounding of sums.

        Raises a ValueError if its sums differ from those of this history, or the method has no history. The state is
        then unchanged.

        Parameters
        ----------
        delta : HistoryDelta
            From `take_delta` or `pending_delta` of another worker. Parts that this estimator already has, or
            recorded itself, count once.
        """
        if self.baseline.horizon == 0:
            raise ValueError(f"method {self.method!r} keeps no history, so there is nothing to merge.")
        state: Any = self.state
        given, new = common_inputs(state.given, delta.given), delta.without(state.received)
        state = replace(state, last_step=max(state.last_step, delta.last_step), given=given)
        state = replace(state, received=state.received.joined(new.origins))
        if new.parts:
            recorded = RecordedVisits.joined([*new.parts.values()])
            begun = state if state.history is not None else self._begun(state, given or "", recorded.center)
            state = _with_visits(begun, recorded, delta.last_step)
        self.put(state)

    def take_delta(self) -> HistoryDelta:
        """Everything recorded by `step` and `observe` since the last call, for others to `merge`.

        If a delta may be lost on its way, use `pending_delta` and `acknowledge`. Raises a ValueError if the estimator
        was not made with ``keep_deltas=True``.
        """
        delta, state = self.pending_delta(), cast(Any, self.state)
        self.put(replace(state, pending=HistoryDelta()))
        return delta

    def pending_delta(self) -> HistoryDelta:
        """The delta that `take_delta` would return; it stays until others `acknowledge` it. Errors as there."""
        if not self.keep_deltas:
            raise ValueError("deltas are kept only by an estimator made with keep_deltas=True.")
        state: Any = self.state
        return replace(state.pending, last_step=state.last_step)

    def acknowledge(self, origins: Iterable[Origin]) -> None:
        """Drop the parts of the pending delta that all others have, by origin (`HistoryDelta.origins`)."""
        elsewhere = frozenset(origins)
        state: Any = self.state
        self.put(replace(state, pending=state.pending.without(elsewhere)))

    # What the base class does in order

    def _arguments(self) -> dict[str, Any]:
        return super()._arguments() | {"late": self._asked_late, "keep_deltas": self.keep_deltas}

    def _first_state(self) -> AsynchronousState:
        return AsynchronousState()

    def _stored_state(self, state: Any) -> AsynchronousState:
        self._sender = NO_SENDER  # numbers after those of the state may have been given already

        def history_of(plain: dict[str, Any]) -> LateHistory:
            return LateHistory.from_state_dict(plain, late=plain["late"])

        if "pending" not in state:
            raise ValueError("state: of steps in order; load it into an AdvantageEstimator.")
        received, pending = Received.of_plain(state["received"]), HistoryDelta.of_plain(state["pending"])
        more = {"received": received, "pending": pending if self.keep_deltas else HistoryDelta()}
        loaded = AsynchronousState.of(state, self.method, self.baseline, history_of, **more)
        history, needed = cast(Any, loaded.history), (visits_to_keep(self.baseline), self.late)
        if history is not None and (history.max_visits, history.late) != needed:
            raise ValueError(
                f"state: its history keeps {history.max_visits:g} visits, and {history.late} steps for late ones; this "
                f"estimator needs {needed[0]:g} and {needed[1]}; build it with the parameters that were saved."
            )
        return loaded

    def _new_history(self, given: str) -> LateHistory:
        kept = visits_to_keep(self.baseline)
        return LateHistory(self.baseline.horizon, late=self.late, weighted=is_weighted(given), max_visits=kept)

    def _advanced(self, name: str, state: Any, samples: Samples, step: int) -> tuple[EstimatorState, StepRecord | None]:
        if samples.version is not None and samples.version.max(initial=0) > step:
            raise ValueError(
                f"version: {samples.version.max()} is after step {step}; a completion's version is the step of the "
                "policy that sampled it."
            )
        later = state if name == "advantages" else replace(state, last_step=max(step, state.last_step))
        if not samples.packing.keys:
            return later, None
        begun, record = state, None
        if state.history is None and self.plan.horizon > 0:
            begun = self._begun(state, samples.given, self._center(samples.reward))
        batch = group(self.plan, begun, samples, step)
        if name != "observe":
            visits, carry, groups = self._past_at(begun, batch, again=name == "advantages")
            record, _ = compute(self.plan, replace(batch, groups=groups), visits, carry)
        if name == "advantages" or begun.history is None:
            return later, record
        if record is None:  # what a later step would refuse is refused now
            self.baseline.less(batch.center).values(batch.groups, Visits.empty(batch.groups), step=step)
        recorded = _recorded(batch)
        after: Any = replace(_with_visits(begun, recorded, step), given=samples.given)
        if self.keep_deltas:
            origin = after.received.next_of(self._sender_name())
            pending = HistoryDelta(after.pending.parts | {origin: recorded}, after.last_step, samples.given)
            after = replace(after, received=after.received.joined([origin]), pending=pending)
        return after, record

    def _past_at(self, state: Any, batch: Batch, *, again: bool) -> tuple[Visits, Any, Groups]:
        """Visits of earlier versions, the carry, and the groups with the completions that join them.

        ``again`` says that the completions of the call may be recorded already.
        """
        samples, step, history = batch.samples, batch.step, state.history
        if history is None:
            return Visits.empty(batch.groups), None, batch.groups
        packing, newest, without = samples.packing, newest_versions(samples, step), None
        if again:
            version = np.full(len(packing.codes), step) if samples.version is None else samples.version
            without = packing.codes, newest[packing.codes] - version
        earlier = history.visits_known(history.rows(packing.keys), newest, without)
        visits, now = split_now(earlier, self.baseline.max_visits)
        groups = batch.groups if now is None else joined(batch.groups, completions_of(now))
        oldest = step if samples.version is None else int(samples.version.min())
        return visits, scores_before(self.baseline, history, oldest, state.scores), groups

    def _sender_name(self) -> str:
        """The name under which this estimator in this process numbers its deltas.

        Copies, forks and loaded estimators get new names. If two used one name, they would give the same number to two
        deltas, and one of these would be lost.
        """
        if self._sender[0] != os.getpid():
            self._sender = os.getpid(), secrets.token_hex(8)
        return self._sender[1]

    def _known(self, state: Any, keys: list[Hashable], step: int) -> tuple[Visits, Any]:
        history = state.history
        known = history.visits_known(history.rows(keys), np.full(len(keys), step))
        return split_now(known, self.baseline.max_visits)[0], scores_before(self.baseline, history, step, state.scores)

    def _watches(self, before: EstimatorState, record: StepRecord) -> bool:
        return True

    def _warned(
        self, before: EstimatorState, after: EstimatorState, samples: Samples, record: StepRecord
    ) -> tuple[EstimatorState, list[str]]:
        (after, texts), history = super()._warned(before, after, samples, record), before.history
        if history is None or "late" in before.warned or min(history.horizon, history.max_visits) == math.inf:
            return after, texts
        oldest = int(newest_versions(samples, record.step).min())
        behind = before.last_step - oldest
        if behind <= self.late:
            return after, texts
        late = (
            f"{self.method}: completions of step {oldest} came when step {before.last_step} had been recorded. The "
            f"history is kept for completions that are up to {self.late} steps late, so these have lost part of their "
            f"past. To keep all of it, make the estimator with late={behind} or more."
        )
        return replace(after, warned=after.warned | {"late"}), [*texts, late]


def newest_versions(samples: Samples, step: int) -> np.ndarray:
    """The newest version among the completions of each prompt, shape (P,)."""
    newest = np.full(len(samples.packing.keys), step if samples.version is None else 0)
    if samples.version is not None:
        np.maximum.at(newest, samples.packing.codes, samples.version)
    return newest


def _recorded(batch: Batch) -> RecordedVisits:
    """The sums of a call by prompt and version."""
    samples, packing = batch.samples, batch.samples.packing
    version = np.full(len(packing.codes), batch.step) if samples.version is None else samples.version
    pairs = Packing.of(list(zip(packing.codes.tolist(), version.tolist(), strict=True)))
    row, step = np.array(pairs.keys, dtype=np.int64).reshape(-1, 2).T
    weight = None if samples.weight is None else pairs.pack(samples.weight)
    sums = visit_sums(replace(batch.groups, reward=pairs.pack(samples.reward), mask=pairs.mask, weight=weight))
    return RecordedVisits(packing.keys, row, step, sums, batch.center)


def _with_visits(state: Any, recorded: RecordedVisits, last_step: int) -> EstimatorState:
    """The state with a write of the visits; the history itself is unchanged."""
    first = int(recorded.step.min())
    return replace(
        state,
        write=state.history.added(recorded, last_step),
        scores={step: scores for step, scores in state.scores.items() if step < first},
        last_step=max(state.last_step, last_step),
    )
