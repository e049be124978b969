"""One call, from its samples to its result; `Order` holds what depends on the order of steps."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from kaestat.baselines.base import Baseline, Served
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.arrays import Groups, Visits
from kaestat.core.samples import WEIGHTINGS, Packing, StepSamples
from kaestat.estimator.objective import objective_slope, past_rates
from kaestat.estimator.prediction import Prediction, predict
from kaestat.estimator.record import StepRecord
from kaestat.estimator.scaling import DEVIATION, cancels_weights, make_scaling
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.steps.opening import opened
from kaestat.history.delta import HistoryDelta
from kaestat.history.fields import visit_sums

LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class Batch:
    """The samples of one call, their places, and the groups, of shape (P, G)."""

    samples: StepSamples
    step: int
    packing: Packing
    groups: Groups

    def opened(self, state: EstimatorState, baseline: Baseline) -> EstimatorState:
        """The state, with a history for the samples if the baseline keeps one; see `opened`."""
        with_divergence = self.samples.divergence is not None
        return opened(state, baseline, self.samples.weighting, with_divergence=with_divergence)


class Past(NamedTuple):
    """The past as one call sees it: visits of shape (P, V), and the baseline's carry.

    The state has a history for the samples, and ``rows`` are the prompts' rows there, if they are looked up already.
    ``whole`` has further completions beside those of the groups, in the columns after them, which count for the values.
    """

    state: EstimatorState
    visits: Visits
    carry: Any
    rows: np.ndarray | None = None
    whole: Groups | None = None


class Computed(NamedTuple):
    """The result of a method for one call, with the sums of the groups for the history, shape (P,) each."""

    record: StepRecord
    sums: dict[str, np.ndarray]
    served: Served


@dataclass(frozen=True)
class Serving:
    """A baseline with its scaling and objective, as `make_scaling` (or "deviation") and `objective_slope` take them.

    ``method`` is its name in messages.
    """

    method: str
    baseline: Baseline
    scale: str
    objective: str = "mean"

    def compute(self, batch: Batch, past: Past) -> Computed:
        """Values and advantages; nothing changes. A ValueError if a number to be kept is not finite."""
        packing, groups, step = batch.packing, batch.groups, batch.step
        visits, carry, whole = past.visits, past.carry, past.whole
        with np.errstate(over="ignore", invalid="ignore"):  # the results are checked: non-finite numbers are refused
            asked = groups if whole is None else whole
            served = self.baseline.serve(asked, visits, step=step, carry=carry)
            if served.values.shape != asked.reward.shape:
                raise ValueError(
                    f"method {self.method!r}: values have shape {served.values.shape}, rewards {asked.reward.shape}."
                )
            values = served.values if whole is None else served.values[:, : groups.reward.shape[1]].copy()
            slope = objective_slope(self.objective)
            weighed = groups.reward - values
            if slope is not None:
                weighed = weighed * slope(past_rates(self.baseline, groups, visits, step, carry))
            advantages = self._scaled(weighed, groups, visits, step)
            sums = {} if self.baseline.horizon == 0 else visit_sums(groups)
        kept = [*sums.values(), *(served.carry or {}).values()]
        self.check_finite(*([np.concatenate(kept, axis=None)] if kept else []))  # small, and checked at once
        record = StepRecord(step, served.settled, packing, groups, visits, past.state.carry, values, advantages)
        return Computed(record, sums, served)

    def check_finite(self, *kept: np.ndarray, largest: float = LARGEST) -> None:
        """Raise a ValueError unless all numbers to be kept or returned are finite and at most ``largest``."""
        if not all(-largest <= numbers.min(initial=0) and numbers.max(initial=0) <= largest for numbers in kept):
            raise ValueError(f"rewards: method {self.method!r} gives numbers that are not finite; rewards too large?")

    def _scaled(self, advantages: np.ndarray, groups: Groups, visits: Visits, step: int) -> np.ndarray:
        if self.scale == DEVIATION:
            return advantages / self.baseline.deviation(groups, visits, step=step)
        return make_scaling(self.scale)(advantages, groups)


class Outcome(NamedTuple):
    """The result of one call: the state after its write, and in any order the delta that others may merge.

    There is no record of a call without samples, nor of one that serves none.
    """

    state: EstimatorState
    record: StepRecord | None = None
    delta: HistoryDelta | None = None


class Order(Protocol):
    """The order of steps: what a call sees of the past, and how its samples become part of it."""

    name: ClassVar[str]

    @property
    def late(self) -> int | None:
        """The number of steps by which completions may be late; None in strict order."""

    def check(self, state: EstimatorState, samples: StepSamples, step: int) -> None:
        """Raise a ValueError unless the step, and the versions of the samples, are allowed now."""

    def look_back(self, state: EstimatorState, baseline: Baseline, batch: Batch) -> Past:
        """The past of new samples; a ValueError if they cannot be new."""

    def recorded(self, past: Past, serving: Serving, batch: Batch, computed: Computed) -> Outcome:
        """The outcome of a call that was served."""

    def observe(self, state: EstimatorState, serving: Serving, samples: StepSamples, step: int) -> Outcome:
        """The outcome of recording completions without advantages."""

    def advantages(self, state: EstimatorState, serving: Serving, samples: StepSamples, now: int) -> Outcome:
        """Advantages of completions that may be recorded already; nothing is recorded."""

    def merged(self, state: EstimatorState, serving: Serving, delta: HistoryDelta) -> EstimatorState:
        """The state with what others recorded."""

    def known(self, state: EstimatorState, baseline: Baseline, keys: list[Hashable], step: int) -> tuple[Visits, Any]:
        """Visits and carry from which prompts are predicted before a step; the state has a history."""

    def newest(self, visits: Visits) -> Visits:
        """The visits, with the newest of each prompt in the last column."""

    def too_late(self, state: EstimatorState, method: str, samples: StepSamples, record: StepRecord) -> str | None:
        """The warning for completions whose past may be gone from a state; None if there are none."""


def check_inputs(serving: Serving, state: EstimatorState, samples: StepSamples) -> None:
    """Raise a ValueError unless the method accepts these inputs, and earlier calls had the same ones."""
    method, baseline, history = serving.method, serving.baseline, state.history
    if samples.weight is not None:
        check_weights_matter(samples.weighting, method, baseline, serving.scale)
    if samples.weighting == "importance" and baseline.needs_weights:
        raise ValueError(f"importance: method {method!r} needs weights= too.")
    if samples.divergence is not None and not baseline.takes_divergence:
        raise ValueError(f"divergence: method {method!r} does not use it; only spo without rho= does.")
    if history is None:
        return
    before = state.weighting or ("weights" if history.weighted else "none")
    for name in WEIGHTINGS:
        if (name in before) != (name in samples.weighting):
            raise ValueError(f"{name} must be given at every step or at none: earlier steps did the opposite.")
    if history.with_divergence != (samples.divergence is not None):
        raise ValueError("divergence must be given at every step or at none.")
    if baseline.unit == "group" and state.with_streams not in (None, samples.with_streams):
        raise ValueError("stream_ids must be given at every step or at none: histories are kept by them.")


def check_weights_matter(given: str, method: str, baseline: Baseline, scale: str) -> None:
    """Raise a ValueError for weights, under the given name, that a method does not take or that change no advantage."""
    if not baseline.takes_weights:
        raise ValueError(
            f"{given}: method {method!r} does not average rewards, so it takes none; take one that does, such as "
            f"{DEFAULT_METHOD!r}, or leave it out."
        )
    if cancels_weights(baseline, scale):
        raise ValueError(
            f"{given}: method {method!r} subtracts one mean from all completions of the step, and scale {scale!r} "
            f"re-centres them, so the advantages are the same without {given}; set scale='none', or leave it out."
        )


def grouped(order: Order, state: EstimatorState, serving: Serving, samples: StepSamples, step: int) -> Batch | None:
    """The samples, checked and grouped; None if there are none.

    A ValueError if they do not fit the order, the method or earlier calls, or those of a prompt differ in divergence.
    """
    order.check(state, samples, step)
    check_inputs(serving, state, samples)
    if not samples.rows.keys:
        return None
    packing, divergence = Packing.of(samples.rows), samples.divergence
    groups = Groups(
        reward=packing.pack(samples.reward),
        mask=packing.mask,
        weight=None if samples.weight is None else packing.pack(samples.weight),
        prompt_ids=packing.keys,
        divergence=None if divergence is None else packing.one_per_row("divergence", divergence),
    )
    return Batch(samples, step, packing, groups)


def without_samples(state: EstimatorState, step: int) -> Outcome:
    """The outcome of a call without samples."""
    return Outcome(replace(state, last_step=max(step, state.last_step)))


def advance(order: Order, state: EstimatorState, serving: Serving, samples: StepSamples, step: int) -> Outcome:
    """The outcome of one step; the given state is unchanged. Errors as `kaestat.AdvantageEstimator.step`."""
    batch = grouped(order, state, serving, samples, step)
    if batch is None:
        return without_samples(state, step)
    past = order.look_back(state, serving.baseline, batch)
    return order.recorded(past, serving, batch, serving.compute(batch, past))


def predicted(order: Order, state: EstimatorState, baseline: Baseline, keys: list[Hashable], step: int) -> Prediction:
    """Predictions of prompts before they are sampled at a step."""
    state = opened(state, baseline) if state.priors else state
    history, visits, carry = state.history, None, state.carry
    if history is not None:
        visits, carry = order.known(state, baseline, keys, step)
    return predict(baseline, history, visits, carry, keys, step, reweighted=state.weighting == "importance")
