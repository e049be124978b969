"""One step: the groups of its samples, and the values and advantages from them and the past."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline, Served
from kaestat.core.arrays import Array, Groups, Visits
from kaestat.core.samples import Packing, Samples
from kaestat.estimator.objective import objective_slope, past_rates
from kaestat.estimator.plan import Plan
from kaestat.estimator.scaling import DEVIATION, check_weights_matter, make_scaling
from kaestat.estimator.state import EstimatorState


@dataclass(frozen=True, eq=False)
class Batch:
    """The samples of one call, and their groups, of shape (P, G).

    The rewards of the samples and groups are as the baseline sees them: bounded (`SeenRewards`), less ``center``.
    """

    samples: Samples
    step: int
    groups: Groups
    given: Groups  # With the rewards as they came
    center: float


@dataclass(frozen=True, eq=False)
class StepRecord:
    """One step of an `AdvantageEstimator` as it was computed, without masked samples.

    The arrays are the estimator's own: they share no memory with the caller's arrays. P rows are prompts, or
    groups for baselines that compare within groups.
    """

    step: int  # Training step, 0-based
    # The baseline that gave the values. A bandwidth learned from the past is fixed for this step (`Served.settled`)
    baseline: Baseline
    packing: Packing  # Sample -> (row, column), and the key of each row
    groups: Groups  # shape (P, G)
    # shape (P, V); visits before the step, of rewards less the history's center; V is 0 for baselines without a history
    visits: Visits
    carry: dict[str, np.ndarray] | Any  # The baseline's state in addition to its history, before the step
    values: np.ndarray  # of float64, shape (P, G); meaningless in the padding
    advantages: np.ndarray  # of float64, shape (P, G); meaningless in the padding


def group(plan: Plan, state: EstimatorState, samples: Samples, step: int) -> Batch:
    """The samples in groups; a ValueError if they do not fit the method or earlier calls."""
    packing = samples.packing
    given = groups = Groups(packing.pack(samples.reward), packing.mask, prompt_ids=packing.keys)
    if samples.given or state.given:
        check_inputs(plan, state, samples)
        weight, divergence = samples.weight, samples.divergence
        given = groups = replace(
            given,
            weight=None if weight is None else packing.pack(weight),
            divergence=None if divergence is None else packing.one_per_row("divergence", divergence),
        )
    center = 0.0 if state.history is None else state.history.center
    if center or plan.bounds_rewards:
        reward = state.seen.bounded(samples.reward) if plan.bounds_rewards else samples.reward
        samples = replace(samples, reward=reward - center)
        groups = replace(given, reward=packing.pack(samples.reward))
    return Batch(samples, step, groups, given, center)


def compute(plan: Plan, batch: Batch, visits: Visits, carry: Any) -> tuple[StepRecord, Served]:
    """Compute the values and advantages of a step; no state changes. Raises a ValueError if a value is not finite.

    The groups may have more columns than were given: further completions, which count for the values alone.
    """
    baseline = plan.baseline.less(batch.center) if batch.center else plan.baseline
    given, packing, step = batch.given, batch.samples.packing, batch.step
    with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite are refused
        served = baseline.serve(batch.groups, visits, step=step, carry=carry)
    if served.values.shape != batch.groups.reward.shape or not np.isfinite(served.values).all():
        raise ValueError(
            f"method {plan.method!r}: values must be finite, of the rewards' shape {batch.groups.reward.shape}; got "
            f"shape {served.values.shape}. If their shape is right, rewards or weights may be too large."
        )
    values = served.values[:, : given.reward.shape[1]]
    advantages = given.reward - batch.center - values
    if plan.scale != "none" or plan.objective != "mean":
        advantages = _scaled(plan, baseline, batch, visits, carry, advantages)
    return StepRecord(step, served.settled, packing, given, visits, carry, values + batch.center, advantages), served


def _scaled(plan: Plan, baseline: Baseline, batch: Batch, visits: Visits, carry: Any, advantages: Array) -> Array:
    slope, given, step = objective_slope(plan.objective), batch.given, batch.step
    if slope is not None:
        advantages = advantages * slope(past_rates(baseline, given, visits, step, carry))
    if plan.scale == DEVIATION:
        return advantages / baseline.deviation(given, visits, step=step)
    return make_scaling(plan.scale)(advantages, given)


def check_inputs(plan: Plan, state: EstimatorState, samples: Samples) -> None:
    """Raise a ValueError unless the method accepts these inputs, and earlier calls had the same ones."""
    method, baseline, names = plan.method, plan.baseline, set(samples.given.split("+"))
    if samples.weight is not None:
        check_weights_matter("importance" if "weights" not in names else "weights", method, baseline, plan.scale)
        if "weights" not in names and baseline.needs_weights:
            raise ValueError(f"importance: method {method!r} needs weights= too.")
    if samples.divergence is not None and not baseline.takes_divergence:
        raise ValueError(f"divergence: method {method!r} does not use it; only spo without rho= does.")
    if state.given is not None and (other := (names ^ set(state.given.split("+"))) - {""}):
        raise ValueError(f"{min(other)} must be given at every step or at none: earlier steps did the opposite.")
