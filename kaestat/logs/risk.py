"""Predictive risk: the unbiased value MSE of any baseline, from the rewards of a run alone.

A leave-one-out value is independent of its own reward given the past, so ``E (Z - Vhat)^2 = Var(Z) + MSE(Vhat)``, and
``Var(Z)`` has the unbiased within-group estimate. For a baseline that contains its own reward with weight w,
``2 w Var(Z)`` is added back.

Prompts are independent contributions to the risk of a baseline that looks at each prompt alone, and a bootstrap over
prompts gives intervals. Where a baseline pools prompts (`Baseline.pools_prompts`), an error that they share is in all
of them, and such intervals are too short; there the log is replayed again without each of some groups of prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kaestat.baselines.base import Baseline
from kaestat.bootstrap import cluster_bootstrap, mean_with_interval, widened
from kaestat.checks import check_whole
from kaestat.logs.jackknife import jackknife_groups, jackknife_interval
from kaestat.logs.reward_log import RewardLog, as_log
from kaestat.logs.reward_range import reward_range
from kaestat.logs.scoring import batches, visit_risks
from kaestat.registry import make_baseline, parse_method
from kaestat.spelling import named

FEWEST_DRAWS = 40  # fewer have no quantile of 2.5 %
LEAVE_ONE_OUT_METHODS = ("grpo", "reinforce++")  # as in the paper's Table 1
RISK_COLUMNS = ["method", "mse", "se", "ci_low", "ci_high", "vs_grpo", "n_prompts", "n_visits"]
DIFFERENCE_COLUMNS = [
    "method",
    "reference",
    "difference",
    "se",
    "ci_low",
    "ci_high",
    "ratio",
    "ratio_low",
    "ratio_high",
    "n_prompts",
    "n_visits",
]


def value_risk(
    log: RewardLog | pd.DataFrame,
    methods: Sequence[str | Baseline],
    *,
    n_boot: int = 1000,
    seed: int = 0,
    min_visits: int = 1,
) -> pd.DataFrame:
    """Unbiased mean squared error of the values that each method would have assigned along the run.

    Parameters
    ----------
    log : RewardLog or DataFrame
        A DataFrame has one completion per row, under the usual names (`RewardLog.from_frame` takes others). At least
        some visits must have two completions or more.
    methods : sequence of str or Baseline
        Names, specifications such as ``"kae:bandwidth=10,kernel=exponential"``, or baselines. As in the paper's
        Table 1, ``grpo`` and ``reinforce++`` enter in leave-one-out form. Methods that are meant for rewards in [0, 1]
        (`RangedBaseline`) and that were given no range are given that of the log (`reward_range`).
    n_boot : int
        Bootstrap draws of prompts behind the 95 % percentile interval, 40 or more; 0 gives Student's interval from the
        spread over prompts instead, and replays nothing again: quick, and too short for methods that pool prompts.
    seed : int
        Seed of the bootstrap, and of the groups of prompts.
    min_visits : int
        Only visits with at least this many earlier ones of the same prompt count, for every method alike.

    Returns
    -------
    DataFrame
        One row per method, in the order given: ``method`` as given; ``mse`` averaged within prompts, then over
        prompts; ``se`` its standard error over prompts; ``ci_low, ci_high``; ``vs_grpo``, the ratio of ``mse`` to
        GRPO's; ``n_prompts`` and ``n_visits`` that entered.

    Notes
    -----
    A method that pools prompts (`Baseline.pools_prompts`: ``james_stein``, ``ebpo``, ``kae_eb``, ``reinforce++``,
    ``critic``, ``bayes_filter``, and kernel methods whose bandwidth is selected) has its standard error and interval
    from a delete-a-group jackknife: the log is replayed without each of 10 groups of prompts too, all at once, and the
    interval is Student's with 9 degrees of freedom. What a whole run shares, such as a walk of all values together, is
    not in it. Such a method takes up to ten times as long as without intervals. With fewer prompts each is a group, and
    with a single one there is no interval (NaN).

    Raises
    ------
    ValueError
        If a method is unknown, no visit qualifies, or the log has one completion per visit throughout: then only
        differences between methods are identified (`risk_differences`).
    TypeError
        If ``log`` is neither, or ``methods`` no list.
    """
    n_boot = draws_of(n_boot)
    scored = prompt_risks(log, [*_listed(methods), "grpo"], min_visits=min_visits, again=n_boot > 0, seed=seed)
    return scored.risk_table(n_boot=n_boot, seed=seed)


def risk_differences(
    log: RewardLog | pd.DataFrame,
    methods: Sequence[str | Baseline],
    reference: str | Baseline = "grpo",
    *,
    n_boot: int = 1000,
    seed: int = 0,
    min_visits: int = 1,
) -> pd.DataFrame:
    """Paired differences of value MSE between methods and a reference, which share the data.

    Differences need no within-group variance, so they are identified with one completion per visit too.

    Parameters
    ----------
    log, methods, n_boot, seed, min_visits
        As in `value_risk`.
    reference : str or Baseline
        The method that the others are compared with.

    Returns
    -------
    DataFrame
        One row per method: ``method, reference, difference`` (negative where the method is better), its ``se`` over
        prompts and 95 % interval ``ci_low, ci_high``; ``ratio`` of the MSEs with its interval ``ratio_low,
        ratio_high`` (NaN with one completion per visit, or without bootstrap); ``n_prompts, n_visits``. Comparisons in
        which either method pools prompts have the jackknife of `value_risk`, the others the bootstrap.

    Raises
    ------
    ValueError
        As in `value_risk`, but for logs with one completion per visit; there, methods that contain their own reward
        are refused.
    """
    n_boot = draws_of(n_boot)
    scored = prompt_risks(
        log, [*_listed(methods), reference], min_visits=min_visits, differences_only=True, again=n_boot > 0, seed=seed
    )
    unidentified = ~np.isfinite(scored.per_prompt).all(axis=0)
    if unidentified.any():
        raise ValueError(
            f"{scored.methods[int(np.argmax(unidentified))]}: contains the completion's own reward, and with one "
            "completion per visit its risk is not identified, not even differences."
        )
    return scored.difference_table(n_boot=n_boot, seed=seed)


@dataclass(frozen=True, eq=False)
class PromptRisks:
    """Risk of several methods for each prompt: what every table of one log is made of, at one replay per method.

    Attributes
    ----------
    methods : tuple of str or Baseline, length M
        As given; the last one is the reference of the tables.
    per_prompt : ndarray, shape (C, M)
        Mean risk over the eligible visits of each prompt that has any.
    n_visits : int
        Number of eligible visits.
    absolute : bool
        Whether the reward variance is subtracted. Where not, every risk is the MSE plus the same variance, and NaN
        for methods that contain the completion's own reward.
    pooled : tuple of bool, length M
        Whether the method pools prompts.
    left_out : ndarray, shape (K, M), optional
        Mean risk over the prompts outside group k: of methods that pool prompts replayed without the group, of the
        others from ``per_prompt``. None if nothing was replayed again.
    """

    methods: tuple[str | Baseline, ...]
    per_prompt: np.ndarray
    n_visits: int
    absolute: bool
    pooled: tuple[bool, ...] = ()
    left_out: np.ndarray | None = None

    def take(self, positions: Sequence[int]) -> PromptRisks:
        """The methods at these positions, in this order."""
        columns = list(positions)
        return PromptRisks(
            tuple(self.methods[position] for position in columns),
            self.per_prompt[:, columns],
            self.n_visits,
            self.absolute,
            tuple(self.pooled[position] for position in columns) if self.pooled else (),
            None if self.left_out is None else self.left_out[:, columns],
        )

    def _jackknifed(self) -> tuple[np.ndarray, np.ndarray]:
        """Which methods need the jackknife and have it, shape (M,); and ``left_out``, empty if there is none."""
        if self.left_out is None:
            return np.zeros(len(self.methods), dtype=bool), np.empty((0, len(self.methods)))
        return np.array(self.pooled, dtype=bool), self.left_out

    def risk_table(self, *, n_boot: int, seed: int) -> pd.DataFrame:
        """The table of `value_risk` for all methods but the last, which must be GRPO."""
        draws = cluster_bootstrap(self.per_prompt, n_boot=n_boot, seed=seed)
        mean, se, low, high = mean_with_interval(self.per_prompt, draws)
        again, left_out = self._jackknifed()
        if again.any():
            se[again], low[again], high[again] = jackknife_interval(mean[again], left_out[:, again])
        return pd.DataFrame(
            {
                "method": list(self.methods[:-1]),
                "mse": mean[:-1],
                "se": se[:-1],
                "ci_low": low[:-1],
                "ci_high": high[:-1],
                "vs_grpo": mean[:-1] / mean[-1] if mean[-1] != 0 else np.nan,
                "n_prompts": len(self.per_prompt),
                "n_visits": self.n_visits,
            },
            columns=RISK_COLUMNS,
        )

    def difference_table(self, *, n_boot: int, seed: int) -> pd.DataFrame:
        """The table of `risk_differences` between all methods but the last and the last."""
        *methods, reference = self.methods
        paired = self.per_prompt[:, :-1] - self.per_prompt[:, -1:]
        draws = cluster_bootstrap(np.concatenate([self.per_prompt, paired], axis=1), n_boot=n_boot, seed=seed)
        drawn_risks, drawn_paired = np.split(draws, [len(self.methods)], axis=1)
        mean, se, low, high = mean_with_interval(paired, drawn_paired)
        pooled, left_out = self._jackknifed()
        again = pooled[:-1] | pooled[-1]
        if again.any():
            left = left_out[:, :-1] - left_out[:, -1:]
            se[again], low[again], high[again] = jackknife_interval(mean[again], left[:, again])
        ratio = np.full((3, len(methods)), np.nan)
        if self.absolute:
            level = self.per_prompt.mean(axis=0)
            ratio[0] = np.divide(level[:-1], level[-1], out=np.full(len(methods), np.nan), where=level[-1] != 0)
            if n_boot:
                with np.errstate(invalid="ignore", divide="ignore"):  # a reference whose risk is 0 has no ratio
                    lowest, highest = np.quantile(drawn_risks[:, :-1] / drawn_risks[:, -1:], [0.025, 0.975], axis=0)
                    ratio[1:] = widened(ratio[0], lowest, highest, len(self.per_prompt))
                    if again.any():
                        left = left_out[:, :-1][:, again] / left_out[:, -1:]
                        ratio[1:, again] = jackknife_interval(ratio[0, again], left)[1:]
        return pd.DataFrame(
            {
                "method": methods,
                "reference": [reference] * len(methods),
                "difference": mean,
                "se": se,
                "ci_low": low,
                "ci_high": high,
                "ratio": ratio[0],
                "ratio_low": ratio[1],
                "ratio_high": ratio[2],
                "n_prompts": len(self.per_prompt),
                "n_visits": self.n_visits,
            },
            columns=DIFFERENCE_COLUMNS,
        )


def risk_baseline(method: str | Baseline) -> Baseline:
    """The baseline whose risk stands for a method: as given, but ``grpo`` and ``reinforce++`` leave-one-out."""
    if isinstance(method, Baseline):
        baseline, name = method, type(method).__name__
    else:
        name, params = parse_method(method)
        baseline = make_baseline(name, **params)
    if baseline.missing_input is not None:
        raise ValueError(f"method {name!r} needs {baseline.missing_input}: pass a Baseline object that has it.")
    return baseline.leave_one_out() if name in LEAVE_ONE_OUT_METHODS else baseline


def prompt_risks(
    log: RewardLog | pd.DataFrame,
    methods: Sequence[str | Baseline],
    *,
    min_visits: int = 1,
    differences_only: bool = False,
    again: bool = False,
    seed: int = 0,
    track: Callable[[Sequence[Baseline]], Iterable[Baseline]] = iter,
) -> PromptRisks:
    """Replay every method; the last one is the reference of the tables.

    Parameters
    ----------
    log, methods, min_visits
        As in `value_risk`, but with the reference at the end of ``methods``.
    differences_only : bool
        Accept a log with one completion per visit, whose risks are known up to a constant.
    again : bool
        Replay methods that pool prompts without each group of prompts too, for intervals.
    seed : int
        Of the groups.
    track : callable
        Wraps the sequence that is worked through, for a progress bar: a baseline for each replay.

    Raises
    ------
    ValueError
        As in `value_risk`.
    """
    log = as_log(log)
    if len(methods) < 2:
        raise ValueError("methods is empty: name at least one, for example 'kae'.")
    baselines = [risk_baseline(method).on_range(*reward_range(log)) for method in methods]
    absolute = not differences_only or bool((log.prompt_units.counts > 1).any())
    eligible = eligible_visits(log, min_visits, absolute)
    scored = np.bincount(log.prompt_units.visit_prompt[eligible], minlength=len(log.prompts)) > 0
    pooled = tuple(baseline.pools_prompts for baseline in baselines)
    group = np.full(len(log.prompts), -1)
    group[scored] = jackknife_groups(int(scored.sum()), seed=seed)
    n_groups = int(group.max()) + 1 if again and any(pooled) and scored.sum() > 1 else 0
    kept = np.stack([np.ones(len(group), dtype=bool), *(group != k for k in range(n_groups))])
    rest = kept[1:, scored]
    jobs = batches(log, methods, baselines, again=n_groups > 0)
    per_prompt, left_out = np.empty((int(scored.sum()), len(methods))), np.empty((n_groups, len(methods)))
    for _, job in zip(track([job.baseline for job in jobs]), jobs, strict=True):
        for columns, whole, without in job.risks(log, kept, eligible, absolute=absolute):
            per_prompt[:, columns] = whole[:, None]
            left_out[:, columns] = np.mean(without, axis=1, where=rest)[:, None]
    n_visits = int(eligible.sum())
    return PromptRisks(tuple(methods), per_prompt, n_visits, absolute, pooled, left_out if n_groups else None)


def draws_of(n_boot: int) -> int:
    """The number of bootstrap draws, 0 or enough for an interval.

    Raises
    ------
    ValueError
        If it is another.
    """
    if check_whole("n_boot", n_boot, least=0) not in range(1, FEWEST_DRAWS):
        return int(n_boot)
    raise ValueError(
        f"n_boot must be {FEWEST_DRAWS} or more, got {n_boot}: fewer draws have no 2.5 % quantile. 0 gives Student's "
        "interval without a bootstrap."
    )


def _listed(methods: Sequence[str | Baseline]) -> list[str | Baseline]:
    try:
        listed = [] if isinstance(methods, str) else list(methods)
    except TypeError:
        listed = []
    if isinstance(methods, str) or (not listed and not isinstance(methods, Sequence)):
        raise TypeError(f"methods must be a list of names, specifications or baselines, got {methods!r}.")
    return listed


def eligible_visits(log: RewardLog, min_visits: int, absolute: bool) -> np.ndarray:
    """Which visits of `RewardLog.prompt_units` are scored, shape (W,); see `prompt_risks`."""
    check_whole("min_visits", min_visits, least=0)
    units = log.prompt_units
    if absolute and not (units.counts > 1).any():
        raise ValueError(
            "the log has one completion per visit (G = 1): the reward variance is not identified, and so only "
            "differences between methods are. Use risk_differences."
        )
    eligible = units.earlier >= min_visits
    if absolute:
        eligible &= units.counts > 1
    if not eligible.any():
        most = int(units.earlier.max())
        raise ValueError(f"no visit has {min_visits} earlier ones (the most is {most}); lower {named('min_visits')}.")
    return eligible


def visit_risk(log: RewardLog, baseline: Baseline, *, absolute: bool) -> np.ndarray:
    """Unbiased squared error of the values at each visit of `RewardLog.prompt_units`, shape (W,).

    Parameters
    ----------
    log : RewardLog
    baseline : Baseline
    absolute : bool
        Subtract the reward variance (NaN where a visit has one completion); otherwise the result is the MSE plus the
        reward variance, which is the same for all baselines.
    """
    return visit_risks(log, baseline, absolute=absolute)[0]
