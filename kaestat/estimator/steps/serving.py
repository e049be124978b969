"""The samples of one call, grouped, and what a method makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kaestat.baselines.base import Baseline, Served
from kaestat.core.arrays import Groups, Visits
from kaestat.core.samples import WEIGHTINGS, Packing, StepSamples
from kaestat.estimator.objective import objective_slope, past_rates
from kaestat.estimator.scaling import DEVIATION, check_not_cancelled, make_scaling
from kaestat.estimator.state import EstimatorState
from kaestat.history.history import visit_sums


@dataclass(frozen=True, eq=False)
class Batch:
    """The samples of one call in groups.

    Attributes
    ----------
    samples : StepSamples
    step : int
    packing : Packing
        Where each sample goes.
    groups : Groups, shape (P, G)
    """

    samples: StepSamples
    step: int
    packing: Packing
    groups: Groups

    @classmethod
    def of(cls, samples: StepSamples, step: int) -> Batch:
        """Group the samples.

        Raises
        ------
        ValueError
            If the samples of a prompt differ in divergence.
        """
        packing, divergence = Packing.of(samples.rows), samples.divergence
        groups = Groups(
            reward=packing.pack(samples.reward),
            mask=packing.mask,
            weight=None if samples.weight is None else packing.pack(samples.weight),
            prompt_ids=packing.keys,
            divergence=None if divergence is None else packing.one_per_row("divergence", divergence),
        )
        return cls(samples, step, packing, groups)


class Past(NamedTuple):
    """What a call sees of the past.

    Attributes
    ----------
    visits : Visits, shape (P, V)
    carry : optional
        The baseline's state beyond them.
    rows : ndarray of int, shape (P,), or None
        Where the history has the prompts, if that is looked up already.
    whole : Groups or None
        The groups with further completions beside their own, in the columns after them, which count for the values.
    """

    visits: Visits
    carry: Any
    rows: np.ndarray | None = None
    whole: Groups | None = None


@dataclass(frozen=True, eq=False)
class Computed:
    """What one call gives.

    Attributes
    ----------
    served : Served
    values, advantages : ndarray, shape (P, G)
    of_samples : pair of ndarray, shape (N,)
        Advantages and values in the order of the samples.
    sums : dict of ndarray, shape (P,) each
        What a history keeps of the groups.
    """

    served: Served
    values: np.ndarray
    advantages: np.ndarray
    of_samples: tuple[np.ndarray, np.ndarray]
    sums: dict[str, np.ndarray]


@dataclass(frozen=True)
class Serving:
    """A baseline with its scaling.

    Attributes
    ----------
    method : str
        Name in messages.
    baseline : Baseline
    scale : str
        As `kaestat.estimator.scaling.make_scaling` takes it, or "deviation".
    objective : str
        As `kaestat.estimator.objective.objective_slope` takes it.
    """

    method: str
    baseline: Baseline
    scale: str
    objective: str = "mean"

    def compute(self, batch: Batch, past: Past, largest: float) -> Computed:
        """Values and advantages; nothing is changed.

        Parameters
        ----------
        batch : Batch
        past : Past
        largest : float
            That advantages and values may be.

        Raises
        ------
        ValueError
            If a number is not finite, or larger than ``largest``.
        """
        packing, groups, step = batch.packing, batch.groups, batch.step
        visits, carry, whole = past.visits, past.carry, past.whole
        with np.errstate(over="ignore", invalid="ignore"):  # the results are tested: what is not finite is refused
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
            of_samples = packing.unpack(advantages), packing.unpack(values)
            sums = {} if self.baseline.horizon == 0 else visit_sums(groups)
        self.check_finite(*sums.values(), *(() if served.carry is None else served.carry.values()))
        if not all((np.abs(numbers) <= largest).all() for numbers in of_samples):
            raise self._not_finite()
        return Computed(served, values, advantages, of_samples, sums)

    def check_finite(self, *kept: np.ndarray) -> None:
        """Raise a ValueError unless all that is to be kept is finite."""
        if not all(np.isfinite(column).all() for column in kept):
            raise self._not_finite()

    def _not_finite(self) -> ValueError:
        return ValueError(f"rewards: method {self.method!r} gives numbers that are not finite; rewards too large?")

    def _scaled(self, advantages: np.ndarray, groups: Groups, visits: Visits, step: int) -> np.ndarray:
        if self.scale == DEVIATION:
            return advantages / self.baseline.deviation(groups, visits, step=step)
        return make_scaling(self.scale)(advantages, groups)


def check_inputs(serving: Serving, state: EstimatorState, samples: StepSamples) -> None:
    """Raise a ValueError unless the method takes what comes with the samples, and earlier calls came with the same."""
    method, baseline, history = serving.method, serving.baseline, state.history
    if samples.weight is not None and not baseline.takes_weights:
        raise ValueError(f"{samples.weighting}: method {method!r} does not average rewards, so it takes none.")
    if samples.weight is not None:
        check_not_cancelled(samples.weighting, method, baseline, serving.scale)
    if samples.weighting == "importance" and baseline.needs_weights:
        raise ValueError(f"importance: method {method!r} needs weights= beside it.")
    if samples.divergence is not None and not baseline.takes_divergence:
        raise ValueError(f"divergence: method {method!r} makes no use of it; only spo without rho= does.")
    if history is None:
        return
    before = state.weighting or ("weights" if history.weighted else "none")
    for name in WEIGHTINGS:
        if (name in before) != (name in samples.weighting):
            raise ValueError(f"{name} must be given at every step or at none: the history has been kept the other way.")
    if history.with_divergence != (samples.divergence is not None):
        raise ValueError("divergence must be given at every step or at none.")
    if baseline.unit == "group" and state.with_streams not in (None, samples.with_streams):
        raise ValueError("stream_ids must be given at every step or at none: histories are kept by them.")
