"""Two runs compared from their reward logs alone: the computation behind `kaestat compare`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from kaestat.core.bootstrap import NORMAL_975, cluster_bootstrap, mean_with_interval
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import draws_of
from kaestat.report.facts import LogFacts, ends_of, groups_alike
from kaestat.report.reward_curve import RewardCurve, reaching
from kaestat.report.unit import Estimate

SHARE = "completions to an equal mean reward"
ENOUGH_COMMON = 10  # prompts of both runs that make a difference paired
POSSIBLE = {"dead groups": (0.0, 1.0), "mean length": (0.0, math.inf)}  # of other quantities: the rewards' range
COLUMNS = [
    "quantity", "before", "before_low", "before_high", "after", "after_low", "after_high", "difference", "low", "high",
    "n_common",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class RunComparison:
    """A run before a change and a run after it."""

    names: tuple[str, str]  # Names of the two logs, before and after
    facts: tuple[LogFacts, LogFacts]
    # One row per quantity: both values with 95 % intervals over prompts; the difference, after less before, with its
    # interval; and ``n_common``, the prompts that it is paired over, 0 where the runs count as independent
    figures: pd.DataFrame
    curves: tuple[RewardCurve, RewardCurve]  # Mean reward against completions
    level: float  # Mean reward at the end of the run before
    share: Estimate  # Completions that the run after needs to reach it over those of the run before; may be infinite
    different: tuple[str, ...]  # Quantities whose difference is shown by an interval for all `n_tested` at once
    n_tested: int
    share_shown: bool  # Whether prompts are shared, and the share's interval is not from a number to "not reached"


def compare_runs(
    before: RewardLog,
    after: RewardLog,
    names: tuple[str, str] = ("before", "after"),
    *,
    n_boot: int = 1000,
    seed: int = 0,
) -> RunComparison:
    """A comparison of two runs: rewards, dead groups, completions to an equal mean reward, by prompts' names."""
    n_boot = draws_of(n_boot)
    sides = [_prompt_figures(log) for log in (before, after)]
    possible = _possible_rewards(before, after)
    rows = [
        _figure(name, (sides[0][name], sides[1][name]), POSSIBLE.get(name, possible), n_boot, seed)
        for name in sides[0]
        if not (sides[0][name].empty or sides[1][name].empty)
    ]
    figures = pd.DataFrame(rows, columns=COLUMNS)
    curves = RewardCurve.of(before), RewardCurve.of(after)
    level, share = reaching(*curves, n_boot=n_boot, seed=seed)
    tested: dict[str, Any] = {
        name: gap for name, *gap in figures.iloc[1:][["quantity", "difference", "low", "high"]].itertuples(index=False)
    }
    share_shown = bool(figures["n_common"].max() > 0) and not (math.isfinite(share[1]) and math.isinf(share[2]))
    if share_shown:
        with np.errstate(divide="ignore"):
            tested[SHARE] = np.log(share).tolist()
    different = tuple(name for name, gap in tested.items() if _is_shown(gap, len(tested)))
    facts = LogFacts.of(before), LogFacts.of(after)
    return RunComparison(names, facts, figures, curves, level, share, different, len(tested), share_shown)


def _prompt_figures(log: RewardLog) -> dict[str, pd.Series]:
    """Mean of each quantity for each prompt that has it, by prompt."""
    frame = log.frame
    start, end = ends_of(log)
    prompts = pd.Index(log.prompts, dtype=object, tupleize_cols=False)

    def means(rows: pd.DataFrame, column: str) -> pd.Series:
        mean = rows.groupby("prompt")[column].mean()
        return pd.Series(mean.to_numpy(dtype=float), index=prompts[mean.index])

    alike, several = groups_alike(log)
    dead = pd.DataFrame({"prompt": log.group_units.visit_prompt, "dead": alike})[several]
    return {
        "mean reward, first tenth": means(frame[start], "reward"),
        "mean reward, last tenth": means(frame[end], "reward"),
        "dead groups": means(dead, "dead"),
        "mean length": means(frame, "length") if "length" in frame else pd.Series(dtype=float),
    }


def _possible_rewards(before: RewardLog, after: RewardLog) -> tuple[float, float]:
    """0 and 1 if all rewards lie between them, the two rewards if there are no others; else any number may occur."""
    rewards = np.unique(np.concatenate([log.prompt_units.reward for log in (before, after)]))
    low, high = float(rewards[0]), float(rewards[-1])
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return (low, high) if len(rewards) == 2 else (-math.inf, math.inf)


def _figure(
    quantity: str, runs: Sequence[pd.Series], possible: tuple[float, float], n_boot: int, seed: int
) -> tuple[str | float, ...]:
    """The row of a quantity; no interval leaves the ``possible`` range of a prompt's figure."""
    before, after = runs
    sides = [_mean(side.to_numpy(), possible, n_boot, seed) for side in runs]
    common = before.index.intersection(after.index)
    if len(common) < ENOUGH_COMMON:
        return (quantity, *sides[0], *sides[1], *_independent(*sides), 0)
    most = possible[1] - possible[0]
    gap = _mean((after[common] - before[common]).to_numpy(), (-most, most), n_boot, seed)
    return (quantity, *sides[0], *sides[1], *gap, len(common))


def _mean(samples: np.ndarray, possible: tuple[float, float], n_boot: int, seed: int) -> Estimate:
    column = samples[:, None]
    draws = cluster_bootstrap(column, n_boot=n_boot, seed=seed)
    mean, _, *ends = (float(part[0]) for part in mean_with_interval(column, draws))
    low, high = np.clip(ends, *possible).tolist()
    return mean, low, high


def _independent(before: Estimate, after: Estimate) -> Estimate:
    """The difference of two means that share nothing, whose interval is as skewed as theirs (Zou and Donner, 2008)."""
    gap = after[0] - before[0]
    below = math.hypot(after[0] - after[1], before[2] - before[0])
    above = math.hypot(after[2] - after[0], before[0] - before[1])
    return gap, gap - below, gap + above


def _is_shown(difference: Estimate, n_tested: int) -> bool:
    """Whether the interval leaves out 0 after it is widened to hold for so many at once (Bonferroni)."""
    gap, low, high = difference
    wide = NormalDist().inv_cdf(1 - 0.025 / n_tested) / NORMAL_975
    if math.isinf(gap):  # a level that is never reached
        return math.isinf(low) or math.isnan(low)
    return gap - wide * (gap - low) > 0 or gap + wide * (high - gap) < 0
