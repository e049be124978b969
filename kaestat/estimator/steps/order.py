"""One path for the calls of all estimators; what differs with the order of steps stands behind `Order`."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.arrays import Visits
from kaestat.core.samples import StepSamples, scatter
from kaestat.estimator.prediction import Prediction, predict
from kaestat.estimator.record import StepRecord
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.steps.opening import opened, opened_for
from kaestat.estimator.steps.serving import Batch, Computed, Past, Serving, check_inputs
from kaestat.history.delta import HistoryDelta


class Outcome(NamedTuple):
    """What one call leaves.

    Attributes
    ----------
    state : EstimatorState
        After the call.
    record : StepRecord or None
        None for a call without samples, and for one that only records.
    advantages, values : ndarray, shape (N,)
        Of the samples that are not masked; empty where there is no record.
    delta : HistoryDelta or None
        What was recorded, for other workers; None in strict order.
    """

    state: EstimatorState
    record: StepRecord | None = None
    advantages: np.ndarray = np.zeros(0)
    values: np.ndarray = np.zeros(0)
    delta: HistoryDelta | None = None

    def of_all(self, samples: StepSamples) -> tuple[np.ndarray, np.ndarray]:
        """Advantages and values of all samples that were given, 0 where masked."""
        if self.record is None:
            nothing = np.zeros(len(samples.reward if samples.keep is None else samples.keep))
            return nothing, nothing
        return scatter(self.advantages, samples.keep), scatter(self.values, samples.keep)


class Order(Protocol):
    """How steps come: what a call sees of the past, and how its samples become part of it."""

    name: ClassVar[str]

    @property
    def late(self) -> int | None:
        """Steps by which completions may be late; None in strict order."""

    def check(self, state: EstimatorState, samples: StepSamples, step: int) -> None:
        """Raise a ValueError unless the step, and the versions of the samples, may come now."""

    def look_back(self, state: EstimatorState, baseline: Baseline, batch: Batch) -> Past:
        """What new samples see of the past."""

    def recorded(self, outcome: Outcome, serving: Serving, batch: Batch, past: Past, computed: Computed) -> Outcome:
        """The outcome with the samples in its state, once the write there is carried out."""

    def known(self, state: EstimatorState, baseline: Baseline, keys: list[Hashable], step: int) -> tuple[Visits, Any]:
        """Visits and carry, of a state with a history, that prompts are predicted from before a step."""

    def observe(
        self, state: EstimatorState, serving: Serving, samples: StepSamples, step: int, largest: float
    ) -> Outcome:
        """Record completions without advantages."""

    def advantages(
        self, state: EstimatorState, serving: Serving, samples: StepSamples, now: int, largest: float
    ) -> Outcome:
        """Advantages and values of completions that may have been recorded before; nothing is recorded."""

    def merged(self, state: EstimatorState, serving: Serving, delta: HistoryDelta) -> EstimatorState:
        """The state with what came in elsewhere."""

    def newest(self, visits: Visits) -> Visits:
        """The visits, the newest of each prompt in the last column."""

    def too_late(self, state: EstimatorState, method: str, samples: StepSamples, record: StepRecord) -> str | None:
        """What to tell of completions whose past may be gone from a state; None if there are none."""


def begun(
    order: Order, state: EstimatorState, serving: Serving, samples: StepSamples, step: int
) -> tuple[EstimatorState, Batch] | None:
    """The state with a history for the samples, and these in groups; None if there are none.

    Raises
    ------
    ValueError
        If the samples do not fit the order, the method or earlier calls. The state given is unchanged.
    """
    order.check(state, samples, step)
    check_inputs(serving, state, samples)
    if not samples.rows.keys:
        return None
    return opened(state, serving.baseline, samples), Batch.of(samples, step)


def without_samples(state: EstimatorState, step: int) -> Outcome:
    """The outcome of a call without samples."""
    return Outcome(replace(state, last_step=max(step, state.last_step)))


def served(
    state: EstimatorState, serving: Serving, batch: Batch, past: Past, largest: float
) -> tuple[Outcome, Computed]:
    """Advantages and values of samples that are not recorded yet, and what follows for the baseline."""
    computed = serving.compute(batch, past, largest)
    settled, packing = computed.served.settled, batch.packing
    record = StepRecord(
        batch.step, settled, packing, batch.groups, past.visits, state.carry, computed.values, computed.advantages
    )
    return Outcome(state, record, *computed.of_samples), computed


def advance(
    order: Order, state: EstimatorState, serving: Serving, samples: StepSamples, step: int, largest: float
) -> Outcome:
    """Advantages and values of one step, and the state after it; the state given is unchanged.

    Parameters
    ----------
    order : Order
    state : EstimatorState
    serving : Serving
    samples : StepSamples
    step : int
    largest : float
        That advantages and values may be.

    Returns
    -------
    Outcome
        Its state holds the step once the write in it is carried out.

    Raises
    ------
    ValueError
        As `kaestat.AdvantageEstimator.step`.
    """
    begin = begun(order, state, serving, samples, step)
    if begin is None:
        return without_samples(state, step)
    before, batch = begin
    past = order.look_back(before, serving.baseline, batch)
    outcome, computed = served(before, serving, batch, past, largest)
    return order.recorded(outcome, serving, batch, past, computed)


def predicted(order: Order, state: EstimatorState, baseline: Baseline, keys: list[Hashable], step: int) -> Prediction:
    """What is known of prompts before they are sampled at a step."""
    state = opened_for(state, baseline) if state.priors else state
    visits, carry = (None, state.carry) if state.history is None else order.known(state, baseline, keys, step)
    return predict(baseline, state.history, visits, carry, keys, step, reweighted=state.value_is_reweighted)
