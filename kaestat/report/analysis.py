"""What `kaestat analyze` computes: the risk of many methods on one log, as plain tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kaestat.bandwidth import BandwidthSelection
from kaestat.bandwidth.base import PATH_COLUMNS
from kaestat.baselines.base import Baseline
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import LEAVE_ONE_OUT_METHODS, PromptRisks, draws_of, score, value_risk
from kaestat.logs.selection import select_bandwidth
from kaestat.registry import METHODS, make_baseline

REFERENCES = ("kae", "grpo")  # of the paired differences
LEVELS = ("grpo", "reinforce++")  # horizontal lines beside the bandwidth path, as in the paper's sensitivity figure
PATH_KERNELS = ("triangular", "exponential")


@dataclass(frozen=True)
class LogFacts:
    """What a log holds.

    Attributes
    ----------
    n_completions, n_prompts, n_visits, n_steps : int
    group_size, visits_per_prompt : tuple of int
        Smallest and largest number of completions of a group, and of visits of a prompt.
    time_axis : {"step", "visit"}
    binary : bool
        Whether every reward is 0 or 1, so that the mean reward is an accuracy.
    reward_start, reward_end : float
        Mean reward over the first and the last tenth of the completions, in the order of time.
    """

    n_completions: int
    n_prompts: int
    n_visits: int
    n_steps: int
    group_size: tuple[int, int]
    visits_per_prompt: tuple[int, int]
    time_axis: str
    binary: bool
    reward_start: float
    reward_end: float

    @classmethod
    def of(cls, log: RewardLog) -> LogFacts:
        """Read the facts off a log."""
        reward = log.frame["reward"].to_numpy()
        tenth = max(1, len(reward) // 10)
        visits = np.bincount(log.prompt_units.visit_prompt)
        return cls(
            n_completions=len(reward),
            n_prompts=len(log.prompts),
            n_visits=log.n_visits,
            n_steps=log.n_steps,
            group_size=(int(log.group_sizes.min()), int(log.group_sizes.max())),
            visits_per_prompt=(int(visits.min()), int(visits.max())),
            time_axis=log.time_axis,
            binary=bool(np.isin(reward, (0.0, 1.0)).all()),
            reward_start=float(reward[:tenth].mean()),
            reward_end=float(reward[-tenth:].mean()),
        )


@dataclass(frozen=True, eq=False)
class Analysis:
    """The risk of several methods on one log.

    Attributes
    ----------
    facts : LogFacts
    risk : DataFrame or None
        `kaestat.value_risk` of every method, lowest first. None for a log with one completion per visit.
    differences : DataFrame
        `kaestat.risk_differences` to ``kae`` and to ``grpo``, lowest first within each.
    paths : mapping from kernel to BandwidthSelection
        Risk of KAE against its bandwidth at visits with at least one earlier, and the bandwidth of lowest risk. Empty
        unless asked for, and for a log with one completion per visit, or one visit per prompt.
    levels : DataFrame or None
        `kaestat.value_risk` of GRPO and REINFORCE++ at the same visits.
    notes : tuple of str
        What a reader must know to read the tables rightly.
    """

    facts: LogFacts
    risk: pd.DataFrame | None
    differences: pd.DataFrame
    paths: Mapping[str, BandwidthSelection]
    levels: pd.DataFrame | None
    notes: tuple[str, ...]

    def path_table(self) -> pd.DataFrame:
        """All of ``paths`` in one table: ``kernel, bandwidth, risk, se, difference_se``."""
        tables = [selection.path.assign(kernel=kernel) for kernel, selection in self.paths.items()]
        return pd.concat(tables, ignore_index=True)[["kernel", *PATH_COLUMNS]]


def default_methods() -> tuple[str, ...]:
    """Every method that needs no more than rewards, and ``kae`` at half and at twice its bandwidth."""
    ready = [name for name in METHODS if not make_baseline(name).needs]
    return (*ready, "kae:bandwidth=5", "kae:bandwidth=20")


def analyze(
    log: RewardLog,
    methods: Sequence[str | Baseline] | None = None,
    *,
    bandwidth_paths: bool = False,
    n_boot: int = 1000,
    seed: int = 0,
    min_visits: int = 1,
    track: Callable[[Sequence[Baseline]], Iterable[Baseline]] = iter,
) -> Analysis:
    """Compare methods on a log.

    Parameters
    ----------
    log : RewardLog
    methods : sequence of str or Baseline, optional
        As in `kaestat.value_risk`; None means `default_methods`.
    bandwidth_paths : bool
        Also follow the risk of KAE along a grid of bandwidths, for two kernels.
    n_boot, seed, min_visits
        As in `kaestat.value_risk`.
    track : callable
        Wraps the sequence of baselines that is worked through, for a progress bar.

    Returns
    -------
    Analysis

    Raises
    ------
    ValueError
        As in `kaestat.value_risk`; but a log with one completion per visit gives differences only.
    """
    methods = default_methods() if methods is None else tuple(methods)
    if not methods:
        raise ValueError("methods is empty: name at least one, for example 'kae', or None for all.")
    again = draws_of(n_boot) > 0
    scored = score(
        log, [*methods, *REFERENCES], min_visits=min_visits, differences_only=True, again=again, seed=seed, track=track
    )
    kept = [k for k in range(len(methods)) if np.isfinite(scored.per_prompt[:, k]).all()]
    if not kept:
        raise ValueError(
            "the log has one completion per visit (G = 1), and all methods given contain the completion's own reward: "
            "nothing is identified. Add one that does not, for example 'kae'."
        )
    reference = {name: len(methods) + k for k, name in enumerate(REFERENCES)}
    draw: dict[str, Any] = {"n_boot": n_boot, "seed": seed}
    risk = None
    if scored.absolute:
        risk = _lowest_first(scored.take([*kept, reference["grpo"]]).risk_table(**draw), "mse")
    differences = [
        _lowest_first(scored.take([*kept, position]).difference_table(**draw), "difference")
        for position in reference.values()
    ]
    facts, paths, levels = LogFacts.of(log), {}, None
    if bandwidth_paths and scored.absolute and facts.visits_per_prompt[1] > 1:
        paths = {kernel: select_bandwidth(log, "loo_cv", kernel, **draw) for kernel in PATH_KERNELS}
        levels = value_risk(log, LEVELS, **draw)
    left_out = [methods[k] for k in range(len(methods)) if k not in kept]
    return Analysis(
        facts=facts,
        risk=risk,
        differences=pd.concat(differences, ignore_index=True),
        paths=paths,
        levels=levels,
        notes=tuple(_notes(log, scored, left_out, min_visits)),
    )


def _lowest_first(table: pd.DataFrame, column: str) -> pd.DataFrame:
    return table.sort_values(column, kind="stable", ignore_index=True)


def _notes(log: RewardLog, scored: PromptRisks, left_out: list[str | Baseline], min_visits: int) -> Iterable[str]:
    yield (
        f"Scored at {scored.n_visits:,} visits of {len(scored.per_prompt):,} prompts, those with at least {min_visits} "
        "earlier; averaged within prompts, then over prompts; 95 % intervals by bootstrap over prompts."
    )
    if log.time_axis == "visit":
        yield "Time is each prompt's visit index, as the log has no training steps: bandwidths and lags count visits."
    if scored.absolute:
        yield (
            f"{' and '.join(LEAVE_ONE_OUT_METHODS)} enter in leave-one-out form, as in the paper. Where a value "
            "contains its completion's own reward with weight w (dr_grpo, gpg, ebpo, krpo), 2 w Var(Z) is added back, "
            "so that every row is the MSE of the value. Methods that differ only in scaling have the same row."
        )
        return
    yield (
        "One completion per visit (G = 1): the reward variance is not identified and so no MSE is, but differences of "
        "MSE are. Without other completions the values of grpo and rloo are 0, as those of none."
    )
    if left_out:
        yield (
            f"Left out, as their values contain the completion's own reward: {', '.join(map(str, left_out))}. At G = 1 "
            "not even their differences are identified."
        )
