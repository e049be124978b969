"""One step: the groups of its samples, the past of their prompts, and the values and advantages from both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from kaestat.baselines.base import Baseline, Served
from kaestat.core.arrays import Groups, Visits
from kaestat.core.digits import center_of
from kaestat.core.samples import WEIGHTINGS, Packing, StepSamples
from kaestat.estimator.objective import objective_slope, past_rates
from kaestat.estimator.plan import Plan
from kaestat.estimator.scaling import DEVIATION, check_weights_matter, make_scaling
from kaestat.estimator.state import EstimatorState
from kaestat.history.fields import visit_sums


@dataclass(frozen=True, eq=False)
class Batch:
    """The samples of one call, their places, and the groups, of shape (P, G).

    The rewards of the samples and groups are as the baseline sees them: bounded (`SeenRewards`), less ``center``.
    """

    samples: StepSamples
    step: int
    packing: Packing
    groups: Groups
    given: Groups  # With the rewards as they came
    center: float


class Past(NamedTuple):
    """The past as one call sees it: visits of shape (P, V), and the baseline's carry."""

    visits: Visits
    carry: Any
    rows: np.ndarray | None = None  # of int, shape (P,); rows of the prompts in the history, if there is one
    # Further completions beside those of the groups, in the columns after them, which count for the values
    whole: Groups | None = None


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

    @property
    def of_samples(self) -> tuple[np.ndarray, np.ndarray]:
        """Advantages and values of the step's samples, shape (N,) each, in their order."""
        return self.packing.unpack(self.advantages), self.packing.unpack(self.values)


class Computed(NamedTuple):
    """The result of a method for one step, with the sums of the groups for the history, shape (P,) each."""

    record: StepRecord
    sums: dict[str, np.ndarray]
    served: Served


def group(plan: Plan, state: EstimatorState, samples: StepSamples, step: int) -> Batch:
    """The samples in groups; a ValueError if they do not fit the method or earlier calls."""
    check_inputs(plan, state, samples)
    packing, divergence, baseline = Packing.of(samples.rows), samples.divergence, plan.baseline
    given = groups = Groups(
        reward=packing.pack(samples.reward),
        mask=packing.mask,
        weight=None if samples.weight is None else packing.pack(samples.weight),
        prompt_ids=packing.keys,
        divergence=None if divergence is None else packing.one_per_row("divergence", divergence),
    )
    reward = state.seen.bounded(samples.reward) if baseline.bounds_rewards else samples.reward
    center = 0.0 if state.history is None else state.history.columns.center
    if state.history is None and baseline.relative and plan.objective == "mean":
        center = center_of(reward)
    if center or reward is not samples.reward:
        samples = replace(samples, reward=reward - center)
        groups = replace(given, reward=packing.pack(samples.reward))
    return Batch(samples, step, packing, groups, given, center)


def compute(plan: Plan, batch: Batch, past: Past) -> Computed:
    """Values and advantages; nothing changes. A ValueError if a number to be kept is not finite."""
    baseline, groups, given, step = plan.baseline.less(batch.center), batch.groups, batch.given, batch.step
    visits, carry, whole = past.visits, past.carry, past.whole
    with np.errstate(over="ignore", invalid="ignore"):  # the results are checked: non-finite numbers are refused
        served = baseline.serve(groups if whole is None else whole, visits, step=step, carry=carry)
        values = served.values if whole is None else served.values[:, : groups.reward.shape[1]].copy()
        if values.shape != groups.reward.shape:
            shapes = f"values have shape {values.shape}, rewards {groups.reward.shape}"
            raise ValueError(f"method {plan.method!r}: {shapes}.")
        advantages = given.reward - batch.center - values
        slope = None if plan.objective == "mean" else objective_slope(plan.objective)
        if slope is not None:
            advantages = advantages * slope(past_rates(baseline, given, visits, step, carry))
        if plan.scale == DEVIATION:
            advantages = advantages / baseline.deviation(given, visits, step=step)
        elif plan.scale != "none":
            advantages = make_scaling(plan.scale)(advantages, given)
        sums = visit_sums(groups) if baseline.horizon else {}
    check_finite_results(plan.method, values, *sums.values(), *(served.carry or {}).values())
    values = values + batch.center
    record = StepRecord(step, served.settled, batch.packing, given, visits, carry, values, advantages)
    return Computed(record, sums, served)


def check_finite_results(method: str, *results: np.ndarray, largest: float = np.finfo(np.float64).max) -> None:
    """Raise a ValueError unless all numbers to be kept or returned are finite and at most ``largest``."""
    for numbers in results:
        if not (np.abs(numbers) <= largest).all():
            raise ValueError(f"rewards: method {method!r} gives numbers that are not finite; rewards too large?")


def check_inputs(plan: Plan, state: EstimatorState, samples: StepSamples) -> None:
    """Raise a ValueError unless the method accepts these inputs, and earlier calls had the same ones."""
    method, baseline, history = plan.method, plan.baseline, state.history
    if samples.weight is not None:
        check_weights_matter(samples.weighting, method, baseline, plan.scale)
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
