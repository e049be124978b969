"""A call of an estimator that takes time as data: completions of any policy version, in any order and in parts.

A history is sums over visits, so a completion that comes late is added to the visit of the policy that sampled it. What
a value may use never holds the completion's own reward:

- the completions of a call are new, and those of a prompt are one group, left one out; what has been recorded under the
  newest version among them in earlier calls are other completions, and belongs to the group as well (`advance`);
- its past is what has been recorded under versions before that;
- where completions may have been recorded before (`advantages`), the visits that could hold them are left out.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.arrays import Groups, Visits
from kaestat.core.checks import MAX_STEP, check_whole
from kaestat.core.samples import CodedIds, Packing, StepSamples
from kaestat.estimator.prediction import Prediction, predict
from kaestat.estimator.record import StepRecord
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.steps.opening import opened, opened_for
from kaestat.estimator.steps.replayed_scores import replayed_scores
from kaestat.estimator.steps.serving import Computed, Outcome, Serving, check_inputs, grouped, without_samples
from kaestat.estimator.steps.visit_completions import completions_of, joined, split_now
from kaestat.history.delta import HistoryDelta, common
from kaestat.history.history import RewardHistory, visit_sums

ORDERS = ("strict", "any")
LEAST_ALLOWANCE = 16  # steps; the limits that asynchronous trainers set are mostly below
OTHERS = "one that computes from the visits, such as kae, kae_eb, kalman, local_linear or sieve"


def check_options(order: Any, keep_deltas: bool, late: int | None) -> None:
    """Raise a ValueError unless the order is known, and options that belong to one come with it."""
    if not isinstance(order, str) or order not in ORDERS:
        raise ValueError(f"order: unknown {order!r}; choose one of {', '.join(ORDERS)}.")
    if order == "any":
        return
    if keep_deltas:
        raise ValueError('keep_deltas: only with order="any"; what is added to in order cannot be merged.')
    if late is not None:
        raise ValueError('late: only with order="any"; in order nothing is.')


def check_method(serving: Serving) -> None:
    """Raise a ValueError unless the method's values follow from the visits, whatever the order they came in."""
    if serving.baseline.in_order_only:
        instead = "give it a constant rho=" if serving.baseline.takes_divergence else f"take {OTHERS}"
        raise ValueError(
            f'order="any": method {serving.method!r} streams what it knows through the steps, so they must come in '
            f"order; {instead}."
        )


def allowance(baseline: Baseline, late: int | None) -> int:
    """Steps by which completions may be late; ``late``, or if that is None what suits the baseline.

    A completion that is later than its baseline looks back is of a policy that has nothing to do with the present one
    any more, as far as the baseline knows.
    """
    if late is not None:
        return check_whole("late", late, least=0, most=MAX_STEP)
    reach = min(baseline.horizon, baseline.max_visits, MAX_STEP)
    return max(math.ceil(reach), LEAST_ALLOWANCE) if reach < MAX_STEP else LEAST_ALLOWANCE


def too_late(state: EstimatorState, method: str, samples: StepSamples, packing: Packing, step: int) -> str | None:
    """What to tell of completions whose past may be gone from a state; None if there are none."""
    history, late = state.history, state.late
    if history is None or late is None or min(history.horizon, history.max_visits) == math.inf:
        return None
    oldest = int(_newest_versions(samples, packing, step).min())
    behind = state.last_step - oldest
    if behind <= late:
        return None
    return (
        f"{method}: completions of step {oldest} came when step {state.last_step} had been recorded. The history is "
        f"kept for completions that are up to {late} steps late, so the values of these have less of a past. If they "
        f"are to have all of it, make the estimator with late={behind} or more."
    )


def advance(
    state: EstimatorState,
    serving: Serving,
    samples: StepSamples,
    step: int,
    largest: float,
) -> tuple[Outcome, HistoryDelta | None]:
    """Advantages and values of new completions, which are then recorded; what was recorded comes back as well.

    Parameters and errors are those of `kaestat.estimator.steps.strict_order.advance`.
    """
    _check(state, serving, samples, step)
    if not samples.rows.keys:
        return without_samples(state, step), None
    state = opened(state, serving.baseline, samples)
    packing, groups = grouped(samples)
    history, visits, computed = _computed(state, serving, samples, packing, groups, step, largest, again=False)
    outcome = _outcome(state, packing, groups, visits, computed, step)
    if history is None:
        return replace(outcome, state=replace(state, last_step=max(step, state.last_step))), None
    delta = _recorded(samples, packing, groups, computed.sums, step)
    serving.check_finite(*delta.sums.values())
    return replace(outcome, state=_added(state, delta)), delta


def advantages(state: EstimatorState, serving: Serving, samples: StepSamples, now: int, largest: float) -> Outcome:
    """Advantages and values of completions that may have been recorded before; nothing is recorded."""
    _check(state, serving, samples, now)
    if not samples.rows.keys:
        return replace(without_samples(state, now), state=state)
    before = opened(state, serving.baseline, samples)
    packing, groups = grouped(samples)
    _, visits, computed = _computed(before, serving, samples, packing, groups, now, largest, again=True)
    return _outcome(state, packing, groups, visits, computed, now)


def observe(
    state: EstimatorState, serving: Serving, samples: StepSamples, step: int
) -> tuple[Outcome, HistoryDelta | None]:
    """Record completions without advantages."""
    _check(state, serving, samples, step)
    if not samples.rows.keys or serving.baseline.horizon == 0:
        return without_samples(state, step), None
    state = opened(state, serving.baseline, samples)
    packing, groups = grouped(samples)
    serving.baseline.values(groups, Visits.empty(groups), step=step)  # refuses what would be refused later
    with np.errstate(over="ignore", invalid="ignore"):
        delta = _recorded(samples, packing, groups, visit_sums(groups), step)
    serving.check_finite(*delta.sums.values())
    return replace(without_samples(state, step), state=_added(state, delta)), delta


def merge(state: EstimatorState, serving: Serving, delta: HistoryDelta) -> EstimatorState:
    """Add what came in elsewhere; parts that were received before count once."""
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
    return _added(opened_for(state, baseline, "weights" if "weight" in delta.sums else "none"), delta)


def predicted(state: EstimatorState, baseline: Baseline, keys: list[Hashable], now: int) -> Prediction:
    """What is known of prompts before they are sampled at a step, from what has come in of policies before it."""
    state = opened_for(state, baseline) if state.priors else state
    history = state.history
    if history is None:
        visits, carry = None, None
    else:
        visits, _ = split_now(history.visits_known(history.rows(keys), np.full(len(keys), now)))
        carry = replayed_scores(baseline, visits, now, keys)
    return predict(baseline, history, visits, carry, keys, now, reweighted=state.value_is_reweighted)


def _check(state: EstimatorState, serving: Serving, samples: StepSamples, step: int) -> None:
    check_inputs(serving, state, samples)
    if samples.version is not None and samples.version.max(initial=0) > step:
        raise ValueError(
            f"version: {samples.version.max()} is after step {step}; a completion's version is the step of the policy "
            "that sampled it."
        )


def _computed(
    state: EstimatorState,
    serving: Serving,
    samples: StepSamples,
    packing: Packing,
    groups: Groups,
    step: int,
    largest: float,
    *,
    again: bool,
) -> tuple[RewardHistory | None, Visits, Computed]:
    """The history, the past visits, and what follows; ``again`` if the completions may be in the history."""
    baseline = serving.baseline
    history = state.history
    if history is None:
        visits = Visits.empty(groups)
        return None, visits, serving.compute(packing, groups, visits, step, None, largest)
    newest, without = _newest_versions(samples, packing, step), None
    if again:
        version = np.full(len(packing.codes), step) if samples.version is None else samples.version
        without = packing.codes, newest[packing.codes] - version
    visits, now = split_now(history.visits_known(history.rows(packing.keys), newest, without))
    whole = None if now is None or baseline.past_only else joined(groups, completions_of(now))
    carry = replayed_scores(baseline, visits, step, packing.keys)
    return history, visits, serving.compute(packing, groups, visits, step, carry, largest, whole)


def _newest_versions(samples: StepSamples, packing: Packing, step: int) -> np.ndarray:
    """The newest version among the completions of each prompt, shape (P,)."""
    newest = np.full(len(packing.keys), step)
    if samples.version is not None:
        newest[:] = 0
        np.maximum.at(newest, packing.codes, samples.version)
    return newest


def _recorded(
    samples: StepSamples, packing: Packing, groups: Groups, sums: dict[str, np.ndarray], step: int
) -> HistoryDelta:
    """What the history is to keep of a call: ``sums`` by prompt, or by prompt and version where these differ."""
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


def newest(visits: Visits) -> Visits:
    """The newest visit of each prompt, in one column."""
    past = visits.count > 0
    lag = np.min(np.where(past, visits.lag, np.inf), axis=-1, keepdims=True, initial=np.inf)
    count = np.isfinite(lag).astype(float)
    return Visits(lag=np.where(count > 0, lag, 0.0), count=count, total=count, total_sq=count)


def _outcome(
    state: EstimatorState, packing: Packing, groups: Groups, visits: Visits, computed: Computed, step: int
) -> Outcome:
    settled = computed.served.settled
    record = StepRecord(step, settled, packing, groups, visits, None, computed.values, computed.advantages)
    return Outcome(state, record, *computed.of_samples)


def _added(state: EstimatorState, delta: HistoryDelta) -> EstimatorState:
    """The state with a write of the visits; the history itself is unchanged."""
    return replace(
        state,
        write=cast(RewardHistory, state.history).added(delta),
        last_step=max(state.last_step, delta.last_step),
        with_streams=common("stream_ids", state.with_streams, delta.with_streams),
        weighting=common("weights and importance", state.weighting, delta.weighting),
    )
