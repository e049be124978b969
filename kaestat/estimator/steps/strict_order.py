"""A call of an estimator whose steps come in order: each once, and each prompt once a step."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.arrays import Groups, Visits
from kaestat.core.samples import Packing, StepSamples
from kaestat.estimator.prediction import Prediction, predict
from kaestat.estimator.record import StepRecord
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.steps.opening import opened, opened_for
from kaestat.estimator.steps.serving import Outcome, Serving, check_inputs, grouped, without_samples
from kaestat.history.history import RewardHistory


def advance(
    state: EstimatorState,
    serving: Serving,
    samples: StepSamples,
    step: int,
    largest: float,
    packed: tuple[Packing, Groups] | None = None,
) -> Outcome:
    """Advantages and values of one step, and the state after it; the state given is unchanged.

    Parameters
    ----------
    state : EstimatorState
    serving : Serving
    samples : StepSamples
    step : int
    largest : float
        That advantages and values may be.
    packed : Packing and Groups, optional
        What `grouped` makes of the samples, for a caller that has it already.

    Returns
    -------
    Outcome
        Its state holds the step once the write in it is carried out.

    Raises
    ------
    ValueError
        As `kaestat.AdvantageEstimator.step`.
    """
    if step < state.last_step:
        raise ValueError(
            f"step went backwards: got {step} after {state.last_step}. To resume or replay from step {step}, load "
            'the state that was saved before it; rewards that come late take order="any".'
        )
    check_inputs(serving, state, samples)
    if not samples.rows.keys:
        return without_samples(state, step)
    state = opened(state, serving.baseline, samples)
    packing, groups = grouped(samples) if packed is None else packed
    history, rows, visits = _look_back(state, serving.baseline, groups, packing.keys, step)
    computed = serving.compute(packing, groups, visits, step, state.carry, largest)

    recorded, carry = state.recorded, computed.served.carry
    if history is None and carry is not None:
        recorded = (recorded if step == state.last_step else {}) | dict.fromkeys(packing.keys)
    record = StepRecord(
        step, computed.served.settled, packing, groups, visits, state.carry, computed.values, computed.advantages
    )
    kept_apart = state.with_streams if history is None else samples.with_streams
    write = None
    if history is not None:
        write = history.appended(packing.keys, rows, step, computed.sums, computed.served.state)
    after = EstimatorState(carry, history, step, recorded, kept_apart, samples.weighting, write=write)
    return Outcome(after, record, *computed.of_samples)


def predicted(state: EstimatorState, baseline: Baseline, keys: list[Hashable], step: int) -> Prediction:
    """What is known of prompts before they are sampled at a step, after their last visits."""
    state = opened_for(state, baseline) if state.priors else state
    history = state.history
    visits = None if history is None else history.visits(keys, step)
    return predict(baseline, history, visits, state.carry, keys, step, reweighted=state.value_is_reweighted)


def _look_back(
    state: EstimatorState, baseline: Baseline, groups: Groups, keys: list[Hashable], step: int
) -> tuple[RewardHistory | None, np.ndarray, Visits]:
    """The history (new at the first step, None for methods without), the prompts' rows in it, and their visits."""
    history = state.history
    if history is None:
        again = [key for key in keys if key in state.recorded] if step == state.last_step else []
        if again:
            raise ValueError(f"prompt {again[0]!r} was already recorded at step {step}: its rewards would count twice.")
        return None, np.zeros(0, dtype=np.intp), Visits.empty(groups)
    rows = history.rows(keys)
    history.check_new(keys, rows, step)
    return history, rows, history.visits_of_rows(rows, step)
