"""What to do, from the risks of a log: which method, with which error, and the lines that set it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kaestat.arrays import Groups, Visits
from kaestat.baselines import Pooled
from kaestat.baselines.base import Baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.kernels import as_kernel
from kaestat.logs.prompt_risks import PromptRisks
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.reward_range import reward_range
from kaestat.logs.risk import eligible_visits, risk_baseline
from kaestat.logs.tuning import MARK
from kaestat.reach import fixed_bandwidth
from kaestat.registry import parse_method

# Of two methods whose errors cannot be told apart, the one that comes first is taken; all others come after these.
SIMPLEST_FIRST = ("rloo", "grpo", "pooled", "reinforce++", "james_stein", "kae", "kae_stream", "spo", "kalman")
# What stands for a method that the tables have in leave-one-out form.
LEFT_OUT = {"grpo": "rloo"}


@dataclass(frozen=True)
class Recommendation:
    """A method for the next run, and what it is worth on the log.

    Attributes
    ----------
    row : str
        Its row in the tables.
    method : str
        Its name in `kaestat.registry.METHODS`; empty for a baseline object.
    params : dict
        Its parameters; bandwidth and kernel are spelled out where prompts come back.
    rival : str
        What it is compared with: ``grpo``, or ``reinforce++`` for a log with one completion per visit.
    difference, difference_low, difference_high : float
        Of its MSE to the rival's, with a 95 % interval; negative where it is better.
    reduction, reduction_low, reduction_high : float
        Share by which its MSE is lower than the rival's; NaN where the rival's is not clear of 0, or not identified.
    noise_reduction : float
        Share by which the noise of the gradient falls, per completion, where score norms do not matter: of the reward
        variance plus the MSE.
    mse_share, rival_mse_share : float
        MSE in units of the reward variance; NaN where that is not identified.
    lowest : str
        The row of lowest MSE.
    tied : tuple of str
        Rows whose paired difference to the lowest has an interval that contains 0, beside ``row``; without intervals
        (one prompt) there are none.
    better : bool
        Whether the interval of the difference to the rival is below 0.
    """

    row: str
    method: str
    params: dict[str, Any]
    rival: str
    difference: float
    difference_low: float
    difference_high: float
    reduction: float
    reduction_low: float
    reduction_high: float
    noise_reduction: float
    mse_share: float
    rival_mse_share: float
    lowest: str
    tied: tuple[str, ...]
    better: bool

    def python_line(self, time_axis: str) -> str:
        """The estimator, for TRL and loops of your own; bandwidths in visits become steps by ``steps_per_visit``."""
        params = ", ".join(f"{key}={_in_steps(key, value, time_axis)}" for key, value in self.params.items())
        return f'AdvantageEstimator("{self.method}"{", " if params else ""}{params})'

    def verl_line(self, time_axis: str) -> str:
        """The same as options of verl's command."""
        words = [f"algorithm.adv_estimator={self.method}"]
        for key, value in self.params.items():
            shown = "BANDWIDTH_IN_STEPS" if _in_visits(key, value, time_axis) else _plain(value)
            words.append(f"+algorithm.kaestat.params.{key}={shown}")
        if looks_further(risk_baseline(self.method)):
            words.append("trainer.v1.trainer_mode=kaestat_sync")
        return " ".join(words)


def recommend(log: RewardLog, scored: PromptRisks, *, min_visits: int, n_boot: int, seed: int) -> Recommendation:
    """The simplest method among those that cannot be told apart from the one of lowest MSE.

    Passed over, unless there are no others, are methods whose values contain the completion's own reward, as their
    gradient is biased, and in a log where every prompt occurs once those that would have nothing but the prior that
    they were given.

    Parameters
    ----------
    log : RewardLog
    scored : PromptRisks
        The rows to choose from and, at the end, what the choice is compared with: GRPO's group mean or, for a log with
        one completion per visit, REINFORCE++'s batch mean, both in leave-one-out form.
    min_visits, n_boot, seed
        As in `kaestat.value_risk`.
    """
    rival = len(scored.methods) - 1
    rows = [k for k in range(rival) if _eligible(scored.methods[k], log)] or list(range(rival))
    mean = scored.per_prompt.mean(axis=0)
    lowest = min(rows, key=lambda k: (mean[k], _complexity(scored.methods[k])))
    gaps = scored.take([*rows, lowest]).difference_table(n_boot=n_boot, seed=seed)
    tied = [k for k, low in zip(rows, gaps["ci_low"], strict=True) if not np.isnan(low) and low <= 0]
    to_rival = scored.take([*rows, rival]).difference_table(n_boot=n_boot, seed=seed)
    better = {k for k, high in zip(rows, to_rival["ci_high"], strict=True) if high < 0}
    open_to = [k for k in {lowest, *tied} if k in better or lowest not in better]
    chosen = min(open_to, key=lambda k: (_complexity(scored.methods[k]), mean[k]))

    gap: Any = next(to_rival.iloc[[rows.index(chosen)]].itertuples())
    variance = _reward_variance(log, min_visits) if scored.absolute else 0.0
    noise = variance + mean[rival]
    level = mean[rival] if scored.absolute and mean[rival] > 0 else np.nan
    ratio = (gap.ratio_low, gap.ratio_high)
    if not np.isfinite(ratio).all():  # without a bootstrap
        ratio = (1 + gap.ci_low / level, 1 + gap.ci_high / level)
    name, params = _settings(scored.methods[chosen], log)
    return Recommendation(
        row=str(scored.methods[chosen]),
        method=name,
        params=params,
        rival=str(scored.methods[rival]),
        difference=float(gap.difference),
        difference_low=float(gap.ci_low),
        difference_high=float(gap.ci_high),
        reduction=float(1 - mean[chosen] / level),
        reduction_low=float(1 - ratio[1]),
        reduction_high=float(1 - ratio[0]),
        noise_reduction=float((mean[rival] - mean[chosen]) / noise) if noise > 0 else np.nan,
        mse_share=float(mean[chosen] / variance) if variance > 0 else np.nan,
        rival_mse_share=float(mean[rival] / variance) if variance > 0 else np.nan,
        lowest=str(scored.methods[lowest]),
        tied=tuple(dict.fromkeys(str(scored.methods[k]) for k in tied if k != chosen)),
        better=chosen in better,
    )


def looks_further(baseline: Baseline) -> bool:
    """Whether a baseline needs more than the groups of one step: the past, or all groups of a prompt."""
    return baseline.horizon > 0 or baseline.stepwise or isinstance(baseline, Pooled)


def _specification(row: str | Baseline) -> str | Baseline:
    return row.removesuffix(MARK) if isinstance(row, str) else row


def _complexity(row: str | Baseline) -> tuple[int, int]:
    if not isinstance(row, str):
        return len(SIMPLEST_FIRST) + 1, 0
    name, params = parse_method(row.removesuffix(MARK))
    return SIMPLEST_FIRST.index(name) if name in SIMPLEST_FIRST else len(SIMPLEST_FIRST), len(params)


def _eligible(row: str | Baseline, log: RewardLog) -> bool:
    """Own rewards are tried out on two groups without a past."""
    baseline = risk_baseline(_specification(row))
    if isinstance(baseline, RangedBaseline) and not _returns(log):
        return False
    groups = Groups(np.array([[0.0, 1.0], [1.0, 1.0]]), prompt_ids=["a", "b"])
    own = baseline.own_derivative(groups, Visits.empty(groups), step=0, carry=baseline.initial_carry())
    return not np.any(np.asarray(own) != 0)


def _returns(log: RewardLog) -> bool:
    return bool((log.prompt_units.earlier > 0).any())


def _reward_variance(log: RewardLog, min_visits: int) -> float:
    """Reward variance within visits, averaged as the risks are: within prompts, then over prompts."""
    units = log.prompt_units
    eligible = eligible_visits(log, min_visits, absolute=True)
    prompt = units.visit_prompt[eligible]
    n = np.bincount(prompt)
    return float((np.bincount(prompt, weights=units.variance[eligible])[n > 0] / n[n > 0]).mean())


def _settings(row: str | Baseline, log: RewardLog) -> tuple[str, dict[str, Any]]:
    """Name and parameters with which a run gets what the row stands for."""
    if not isinstance(row, str):
        return "", {}
    specification = row.removesuffix(MARK)
    name, params = parse_method(specification)
    name = LEFT_OUT.get(name, name)
    baseline = risk_baseline(specification)
    if isinstance(baseline, KernelBaseline) and fixed_bandwidth(baseline) is not None and _returns(log):
        params = {**params, "bandwidth": fixed_bandwidth(baseline), "kernel": as_kernel(baseline.kernel).name}
    low_high = reward_range(log)
    if isinstance(baseline, RangedBaseline) and low_high != (0.0, 1.0):
        params = {"low": low_high[0], "high": low_high[1], **params}
    return name, params


def _in_steps(key: str, value: Any, time_axis: str) -> str:
    shown = f'"{value}"' if isinstance(value, str) else _plain(value)
    return f"{shown} * steps_per_visit" if _in_visits(key, value, time_axis) else shown


def _in_visits(key: str, value: Any, time_axis: str) -> bool:
    return key == "bandwidth" and time_axis == "visit" and isinstance(value, int | float)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
