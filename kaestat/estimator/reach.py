"""Whether a history reaches back far enough to use the visits of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kernel_mean import KernelBaseline
from kaestat.core.arrays import Array, Groups, Visits, namespace
from kaestat.smoothing.selectors import Fixed

FAINT = 0.01  # weight, relative to that of a visit just now, at or below which a visit is as good as forgotten
ENOUGH_RETURNS = 100  # of prompts: the share of them within reach is then known to .03
OUT_OF_REACH_SHARE = 0.9
STEPS_WITHOUT_RETURN = 100
VISITS_IN_REACH = 3  # of a prompt, that a bandwidth should span


def reached(baseline: Baseline, lag: np.ndarray) -> np.ndarray:
    """Whether a past visit still counts after ``lag`` steps, for an array of lags.

    For kernels at a fixed bandwidth it does if its weight is more than 1 % of the weight at lag 0; for other baselines
    if it lies within the horizon.
    """
    steps = fixed_bandwidth(baseline)
    if isinstance(baseline, KernelBaseline) and steps is not None:
        kernel = baseline.weighting
        return np.asarray(kernel.weight(lag / steps, namespace(lag)) > FAINT * kernel.at_zero)
    return (lag <= baseline.horizon) & (baseline.horizon > 0)


def fixed_bandwidth(baseline: Baseline) -> float | None:
    """The bandwidth in steps of a baseline whose bandwidth never changes; None for others."""
    bandwidth = getattr(baseline, "bandwidth", None)
    return bandwidth.steps if isinstance(bandwidth, Fixed) else None


def wide_enough(gap: float) -> float:
    """A bandwidth that spans a few visits of prompts that return every ``gap`` steps, rounded to two digits."""
    return float(f"{VISITS_IN_REACH * gap:.1e}")


@dataclass(frozen=True)
class Returns:
    """Counts of the prompts that came back, until it is clear whether the history is of use."""

    steps: int = 0
    returns: int = 0
    within: int = 0  # Returns that the history reaches
    lags: float = 0.0  # Their sum
    judged: bool = False

    def after(self, method: str, baseline: Baseline, visits: Visits) -> tuple[Returns, str | None]:
        """With one more step, from the past visits of its prompts; and the warning, if it is due now."""
        lag = np.min(np.where(visits.count > 0, visits.lag, np.inf), axis=-1, initial=np.inf)
        lag = lag[lag < np.inf]
        within = self.within + int(reached(baseline, lag).sum())
        now = Returns(self.steps + 1, self.returns + len(lag), within, self.lags + float(lag.sum()))
        if now.returns >= ENOUGH_RETURNS:
            useless = within <= (1 - OUT_OF_REACH_SHARE) * now.returns
            warning = out_of_reach(method, baseline, now.lags / now.returns) if useless else None
            return replace(now, judged=True), warning
        if now.returns == 0 and now.steps == STEPS_WITHOUT_RETURN:
            return now, (
                f"{method}: no prompt has come back in {STEPS_WITHOUT_RETURN} steps, so no value has a past. If an "
                "epoch is longer than that, the bandwidth must be longer than the epoch. If prompts did repeat, their "
                "prompt_ids (or stream_ids) change from visit to visit: some trainers make random ones."
            )
        return now, None


def out_of_reach(method: str, baseline: Baseline, gap: float) -> str:
    """The warning for prompts that return every ``gap`` steps, out of reach, and what to do."""
    steps = fixed_bandwidth(baseline)
    text = f"{method}: prompts return about every {gap:.0f} steps; "
    if steps is None:
        return text + f"its history reaches back {baseline.horizon:g} steps, to hardly any of their visits."
    return text + f'bandwidth {steps:g} reaches hardly any of their visits: use about {wide_enough(gap):g}, or "auto".'


def effective_history(baseline: KernelBaseline, groups: Groups, visits: Visits, step: int | Array) -> Array:
    """Mean number of past completions of a step's rows, each weighted by ``K(lag / bandwidth) / K(0)``; shape (...)."""
    kernel = baseline.weighting
    total = 0.0
    for bandwidth, share in baseline.bandwidths(groups, visits, step=step):
        weight = kernel.weight(visits.lag / bandwidth, groups.xp) / kernel.at_zero
        total = total + share * (weight * visits.count).sum(axis=-1, keepdims=True)
    return np.sum(total, axis=(-2, -1)) / np.sum(groups.count > 0, axis=(-2, -1))
