"""Steps in any order: completions of any policy version, in any order and in parts.

A history consists of sums over visits, so a late completion is added to the visit of the policy that sampled it. What
a value uses never contains the completion's own reward:

- the completions of a call are new, and those of a prompt form one group, each left out of its own value; completions
  that earlier calls recorded under the newest version among them belong to the group as well;
- its past is what has been recorded under versions before that;
- where completions may have been recorded before (`advantages`), the visits that could hold them are left out.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.arrays import Groups, Visits
from kaestat.core.checks import MAX_STEP, check_whole
from kaestat.core.samples import CodedIds, Packing, StepSamples
from kaestat.estimator.record import StepRecord
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.steps.call import Batch, Computed, Outcome, Past, Serving, grouped, without_samples
from kaestat.estimator.steps.opening import opened
from kaestat.estimator.steps.recent_scores import RecentScores, Scores, running_of, scores_before
from kaestat.estimator.steps.visit_completions import completions_of, joined, split_now
from kaestat.history.delta import HistoryDelta, common
from kaestat.history.fields import visit_sums
from kaestat.history.history import RewardHistory
from kaestat.history.unordered import added, visits_known

LEAST_ALLOWANCE = 16  # steps; the limits that asynchronous trainers set are mostly below
OTHERS = "one that computes from the visits, such as kae, kae_eb, kalman, local_linear or sieve"


@dataclass(frozen=True)
class AnyOrder:
    """The `kaestat.estimator.steps.call.Order` of completions in any order, at most ``late`` steps late."""

    name: ClassVar[str] = "any"
    late: int

    @classmethod
    def of(cls, serving: Serving, late: int | None, keep_deltas: bool) -> Self:
        """The order with ``late``; if that is None, with a number that suits the baseline.

        If a completion is later than the baseline looks back, its policy says nothing about the present one as far as
        the baseline is concerned. A ValueError unless the method's values follow from the visits,
        whatever the order they came in.
        """
        baseline = serving.baseline
        if baseline.in_order_only:
            instead = "give it a constant rho=" if baseline.takes_divergence else f"take {OTHERS}"
            raise ValueError(
                f'order="any": method {serving.method!r} keeps a running state, so steps must come in order; {instead}.'
            )
        if late is not None:
            return cls(check_whole("late", late, least=0, most=MAX_STEP))
        reach = min(baseline.horizon, baseline.max_visits, MAX_STEP)
        return cls(max(math.ceil(reach), LEAST_ALLOWANCE) if reach < MAX_STEP else LEAST_ALLOWANCE)

    def check(self, state: EstimatorState, samples: StepSamples, step: int) -> None:
        """Raise a ValueError if a version is after the step."""
        if samples.version is not None and samples.version.max(initial=0) > step:
            raise ValueError(
                f"version: {samples.version.max()} is after step {step}; a completion's version is the step of the "
                "policy that sampled it."
            )

    def look_back(self, state: EstimatorState, baseline: Baseline, batch: Batch, *, again: bool = False) -> Past:
        """Visits of earlier versions, and those that join the groups; ``again`` if samples may be recorded."""
        state, packing, step = batch.opened(state, baseline), batch.packing, batch.step
        history = state.history
        if history is None:
            return Past(state, Visits.empty(batch.groups), None)
        newest, without = _newest_versions(batch.samples, packing, step), None
        if again:
            version = np.full(len(packing.codes), step) if batch.samples.version is None else batch.samples.version
            without = packing.codes, newest[packing.codes] - version
        columns = history.columns
        known = visits_known(columns, history.rows(packing.keys), newest, without, baseline.max_visits)
        visits, now = split_now(known)
        whole = None if now is None or baseline.past_only else joined(batch.groups, completions_of(now))
        if state.scores is None and running_of(baseline) is not None:
            state = replace(state, scores=RecentScores.of(columns))
        oldest = step if batch.samples.version is None else int(batch.samples.version.min())
        return Past(state, visits, scores_before(baseline, columns, state.scores, oldest), whole=whole)

    def recorded(self, past: Past, serving: Serving, batch: Batch, computed: Computed) -> Outcome:
        """The state with the completions of each prompt and version added to their visit."""
        if past.state.history is None:
            return without_samples(past.state, batch.step)._replace(record=computed.record)
        own, recent, versions = None, past.state.scores, batch.samples.version
        on_time = versions is None or bool((versions == batch.step).all())
        if recent is not None and on_time and batch.samples.weight is None and batch.step not in recent.steps:
            own = computed.served.scores
        return _added(past.state, serving, batch, computed.sums, own)._replace(record=computed.record)

    def known(self, state: EstimatorState, baseline: Baseline, keys: list[Hashable], step: int) -> tuple[Visits, Any]:
        """The visits recorded under policies before the step."""
        columns = cast(RewardHistory, state.history).columns
        known = visits_known(columns, columns.rows(keys), np.full(len(keys), step), most=baseline.max_visits)
        recent = RecentScores.of(columns) if state.scores is None else state.scores
        return split_now(known)[0], scores_before(baseline, columns, recent, step)

    def observe(self, state: EstimatorState, serving: Serving, samples: StepSamples, step: int) -> Outcome:
        """The state with the completions recorded; input that a later step would refuse is refused now."""
        batch = grouped(self, state, serving, samples, step)
        if batch is None or serving.baseline.horizon == 0:
            return without_samples(state, step)
        serving.baseline.values(batch.groups, Visits.empty(batch.groups), step=step)
        with np.errstate(over="ignore", invalid="ignore"):
            sums = visit_sums(batch.groups)
        return _added(batch.opened(state, serving.baseline), serving, batch, sums)

    def advantages(self, state: EstimatorState, serving: Serving, samples: StepSamples, now: int) -> Outcome:
        """Advantages and values without the visits that may hold the completions; nothing is recorded."""
        batch = grouped(self, state, serving, samples, now)
        if batch is None:
            return Outcome(state)
        past = self.look_back(state, serving.baseline, batch, again=True)
        return Outcome(state if state.history is None else past.state, serving.compute(batch, past).record)

    def merged(self, state: EstimatorState, serving: Serving, delta: HistoryDelta) -> EstimatorState:
        """The state with the parts of a delta that it did not hold."""
        baseline = serving.baseline
        if baseline.horizon == 0:
            raise ValueError(f"method {serving.method!r} keeps no history, so there is nothing to merge.")
        common("stream_ids", state.with_streams, delta.with_streams)
        common("weights and importance", state.weighting, delta.weighting)
        new = delta.without(state.received)
        state = replace(state, received=state.received.joined(new.origins))
        delta = new.plain_visits()
        if not delta.keys:
            return replace(state, last_step=max(state.last_step, delta.last_step))
        weighting = delta.weighting or ("weights" if "weight" in delta.sums else "none")
        return _with_visits(opened(state, baseline, weighting), delta)

    def newest(self, visits: Visits) -> Visits:
        """The newest visit of each prompt, as late visits may be anywhere."""
        past = visits.count > 0
        lag = np.min(np.where(past, visits.lag, np.inf), axis=-1, keepdims=True, initial=np.inf)
        count = np.isfinite(lag).astype(float)
        return Visits(lag=np.where(count > 0, lag, 0.0), count=count, total=count, total_sq=count)

    def too_late(self, state: EstimatorState, method: str, samples: StepSamples, record: StepRecord) -> str | None:
        """The warning for completions later than ``late``; None if there are none."""
        history = state.history
        if history is None or min(history.horizon, history.max_visits) == math.inf:
            return None
        oldest = int(_newest_versions(samples, record.packing, record.step).min())
        behind = state.last_step - oldest
        if behind <= self.late:
            return None
        return (
            f"{method}: completions of step {oldest} came when step {state.last_step} had been recorded. The history "
            f"is kept for completions that are up to {self.late} steps late, so these have lost part of their "
            f"past. To keep all of it, make the estimator with late={behind} or more."
        )


def _newest_versions(samples: StepSamples, packing: Packing, step: int) -> np.ndarray:
    """The newest version among the completions of each prompt, shape (P,)."""
    newest = np.full(len(packing.keys), step)
    if samples.version is not None:
        newest[:] = 0
        np.maximum.at(newest, packing.codes, samples.version)
    return newest


def _delta(batch: Batch, sums: dict[str, np.ndarray]) -> HistoryDelta:
    """What the history is to keep of a call: ``sums`` by prompt, or by prompt and version where these differ."""
    samples, step, packing = batch.samples, batch.step, batch.packing
    marks = samples.with_streams, samples.weighting
    version, n_prompts = samples.version, len(packing.keys)
    if version is None:
        return HistoryDelta(packing.keys, np.arange(n_prompts), np.full(n_prompts, step), sums, step, *marks)
    packed = packing.pack(version)
    same = packed == packed[:, :1]
    if (same if packing.mask is None else same | ~packing.mask).all():
        return HistoryDelta(packing.keys, np.arange(n_prompts), packed[:, 0].copy(), sums, step, *marks)
    pairs = Packing.of(CodedIds(list(range(n_prompts)), packing.codes).paired(CodedIds.of(version)))
    row, steps = np.array(pairs.keys, dtype=np.intp).T
    weight = None if samples.weight is None else pairs.pack(samples.weight)
    with np.errstate(over="ignore", invalid="ignore"):
        by_pair = visit_sums(Groups(pairs.pack(samples.reward), mask=pairs.mask, weight=weight))
    return HistoryDelta(packing.keys, row, steps, by_pair, step, *marks)


def _added(
    state: EstimatorState,
    serving: Serving,
    batch: Batch,
    sums: dict[str, np.ndarray],
    own: Callable[[], Scores] | None = None,
) -> Outcome:
    """What a call leaves that records sums; a ValueError unless they are finite."""
    delta = _delta(batch, sums)
    serving.check_finite(*delta.sums.values())
    return Outcome(_with_visits(state, delta, None if own is None else own()), delta=delta)


def _with_visits(state: EstimatorState, delta: HistoryDelta, own: Scores | None = None) -> EstimatorState:
    """The state with a write of the visits, and their own scores if known; the history itself is unchanged."""
    last_step = max(state.last_step, delta.last_step)
    return replace(
        state,
        write=added(cast(RewardHistory, state.history).columns, delta),
        last_step=last_step,
        scores=None if state.scores is None else state.scores.after(delta.step, last_step - (state.late or 0), own),
        with_streams=common("stream_ids", state.with_streams, delta.with_streams),
        weighting=common("weights and importance", state.weighting, delta.weighting),
    )
