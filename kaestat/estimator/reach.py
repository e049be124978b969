"""Whether a history reaches back far enough to use the visits of a run."""

from __future__ import annotations

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kernel_mean import KernelBaseline
from kaestat.core.arrays import Array, Groups, Visits, namespace
from kaestat.smoothing.selectors import Fixed
from kaestat.smoothing.selectors.settled import Settled

FAINT = 0.01  # weight, relative to that of a visit just now, at or below which a visit is as good as forgotten
ENOUGH_RETURNS = 30
OUT_OF_REACH_SHARE = 0.9
RECENT_RETURNS = 1000
STEPS_WITHOUT_RETURN = 100
VISITS_IN_REACH = 3  # of a prompt, that a bandwidth should span


def reached(baseline: Baseline, lag: np.ndarray) -> np.ndarray:
    """Whether a past visit still counts after ``lag`` steps, for an array of lags.

    For kernels at a fixed bandwidth it does if its weight is more than 1 % of the weight at lag 0; for other baselines
    if it lies within the horizon.
    """
    lag = np.asarray(lag, dtype=float)
    horizon = baseline.horizon
    if horizon == 0:
        return np.zeros(lag.shape, dtype=bool)
    steps = fixed_bandwidth(baseline)
    if isinstance(baseline, KernelBaseline) and steps is not None:
        kernel = baseline.weighting
        return np.asarray(kernel.weight(lag / steps, namespace(lag)) > FAINT * kernel.at_zero)
    if isinstance(baseline, KernelBaseline) and isinstance(baseline.selector, Settled):
        support, lag = baseline.weighting.support, lag[..., None]
        counted = [(lag <= bandwidth * support) & (share > 0) for bandwidth, share in baseline.selector.resolved]
        return np.asarray(np.any(counted, axis=0)[..., 0])
    return lag <= horizon


def fixed_bandwidth(baseline: Baseline) -> float | None:
    """The bandwidth in steps of a baseline whose bandwidth never changes; None for others."""
    bandwidth = getattr(baseline, "bandwidth", None)
    return bandwidth.steps if isinstance(bandwidth, Fixed) else None


def wide_enough(gap: float) -> float:
    """A bandwidth that spans a few visits of prompts that return every ``gap`` steps, rounded to two digits."""
    return float(f"{VISITS_IN_REACH * gap:.1e}")


class ReturnWatch:
    """A watch that warns once if a history is useless: no prompt returns, or those that return are out of reach."""

    def __init__(self, method: str, baseline: Baseline):
        self._method, self._baseline = method, baseline
        self._steps_without_return = self._returns = self._within = 0
        self._recent = np.zeros(0)  # lags of the last returns
        self._told = False

    def copied(self) -> ReturnWatch:
        """A watch that has seen the same prompts."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)  # `copy.copy` takes ten times as long
        return twin

    def see(self, lag: np.ndarray) -> str | None:
        """The warning, if it is due at this step; None otherwise.

        ``lag`` are the steps since the newest visit, however old it is, of the step's prompts that have one.
        """
        if self._told:
            return None
        self._steps_without_return = 0 if len(lag) else self._steps_without_return + 1
        self._returns += len(lag)
        self._within += int(reached(self._baseline, lag).sum())
        self._recent = np.concatenate([self._recent, lag])[-RECENT_RETURNS:]
        if self._returns >= ENOUGH_RETURNS and self._within <= (1 - OUT_OF_REACH_SHARE) * self._returns:
            self._told = True
            return out_of_reach(self._method, self._baseline, float(np.median(self._recent)))
        if self._returns == 0 and self._steps_without_return == STEPS_WITHOUT_RETURN:
            return (
                f"{self._method}: no prompt has come back in {STEPS_WITHOUT_RETURN} steps, so no value has a past. If "
                "an epoch is longer than that, the bandwidth must be longer than the epoch. If prompts did repeat, "
                "their prompt_ids (or stream_ids) change from visit to visit: some trainers make random ones."
            )
        return None


def out_of_reach(method: str, baseline: Baseline, gap: float) -> str:
    """The warning for prompts that return every ``gap`` steps, out of reach, and what to do."""
    steps = fixed_bandwidth(baseline)
    told = f"{method}: prompts return about every {gap:.0f} steps; "
    if steps is None:
        return told + f"its history reaches back {baseline.horizon:g} steps, to hardly any of their visits."
    return told + f'bandwidth {steps:g} reaches hardly any of their visits: use about {wide_enough(gap):g}, or "auto".'


def effective_history(baseline: KernelBaseline, groups: Groups, visits: Visits, step: int | Array) -> Array:
    """Mean number of past completions of a step's rows, each weighted by ``K(lag / bandwidth) / K(0)``; shape (...)."""
    kernel = baseline.weighting
    total = 0.0
    for bandwidth, share in baseline.bandwidths(groups, visits, step=step):
        weight = kernel.weight(visits.lag / bandwidth, groups.xp) / kernel.at_zero
        total = total + share * (weight * visits.count).sum(axis=-1, keepdims=True)
    return np.sum(total, axis=(-2, -1)) / np.sum(groups.count > 0, axis=(-2, -1))
