"""Predictive risk: the unbiased value MSE of any baseline, from the rewards of one run.

A leave-one-out value is independent of its own reward given the past, so ``E (Z - Vhat)^2 = Var(Z) + MSE(Vhat)``, and
``Var(Z)`` has the unbiased within-group estimate. For a baseline that contains its own reward with weight w,
``2 w Var(Z)`` is added back.

Prompts are independent contributions to the risk of a baseline that looks at each prompt alone, and a bootstrap over
prompts gives intervals. Where a baseline pools prompts (`Baseline.pools_prompts`), an error that they share is in all
of them, and such intervals are too short; there the log is replayed again without each of some groups of prompts.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import make_baseline, parse_method
from kaestat.baselines.reward_range import on_range
from kaestat.baselines.workbench import check_unknown
from kaestat.core.checks import check_whole
from kaestat.core.spelling import named
from kaestat.history.prior import Prior
from kaestat.logs.jackknife import LARGE, REPLAYS, jackknife_groups
from kaestat.logs.prior_visits import log_with_prior
from kaestat.logs.prompt_risks import PromptRisks, contributions, sized_mean, warn_of_few
from kaestat.logs.reward_log import RewardLog, as_log
from kaestat.logs.reward_range import reward_range
from kaestat.logs.scoring import Measure, Scored, prompt_means, rows_alike

if TYPE_CHECKING:
    import pandas as pd

FEWEST_DRAWS = 40  # fewer have no quantile of 2.5 %
LEAVE_ONE_OUT_METHODS = ("grpo", "reinforce++")  # as in the paper's Table 1


def value_risk(
    log: RewardLog | pd.DataFrame,
    methods: Sequence[str | Baseline],
    *,
    n_boot: int = 1000,
    seed: int = 0,
    min_visits: int = 1,
    prior: Prior | Mapping[Hashable, tuple[float, int]] | str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Unbiased mean squared error of the values that each method would have assigned along the run.

    Parameters
    ----------
    log : RewardLog or DataFrame
        A DataFrame has one completion per row and the usual column names (use `RewardLog.from_frame` for others). At
        least some visits must have two completions or more.
    methods : sequence of str or Baseline
        Names, specifications such as ``"kae:bandwidth=10,kernel=exponential"``, or baselines. As in the paper's
        Table 1, ``grpo`` and ``reinforce++`` enter in leave-one-out form, and so do medians and quantiles
        (`Baseline.estimates_mean`). Methods for rewards in [0, 1] (`RangedBaseline`) without a range
        of their own use the range of the log (`reward_range`).
    n_boot : int
        Bootstrap draws of prompts for the 95 % percentile interval, 40 or more. With 0 it is Student's interval from
        the spread over prompts, without further replays: fast, but too short for methods that pool prompts.
    seed : int
        Seed of the bootstrap, and of the groups of prompts.
    min_visits : int
        Only visits with at least this many earlier ones of the same prompt count, the same for all methods. A prior
        counts as an earlier one.
    prior : Prior, mapping or path, optional
        Knowledge about prompts before the run, given to every method (`kaestat.logs.prior_visits.log_with_prior`).

    Returns
    -------
    DataFrame
        One row per method, in the order given: ``method`` as given; ``mse`` averaged within prompts, then over
        prompts; ``se`` its standard error over prompts; ``ci_low, ci_high``; ``vs_grpo``, the ratio of ``mse`` to
        GRPO's; ``n_prompts`` and ``n_visits`` used.

    Notes
    -----
    If a method pools prompts (`Baseline.pools_prompts`, which includes kernel methods that select a bandwidth), its
    standard error and interval come from replays of the log without each of 5 groups of prompts (4 from a million
    visits on). The replays show how the risks of the other prompts change, in addition to what is missing
    (`kaestat.logs.jackknife.replayed_interval`). Effects common to the whole run, such as a joint walk of all values,
    are not included. Such a method takes five times as long as without intervals. With fewer than 5 prompts each is a
    group, and with a single prompt there is no interval (NaN).

    If the contributions of prompts are skewed, every interval is longer on the side of the long tail
    (`kaestat.core.bootstrap.skewed_ends`).

    Warns
    -----
    FewPromptsWarning
        If a risk rests on few prompts, so that its interval may be too short (`kaestat.logs.prompt_risks.warn_of_few`).
    NegativeRiskWarning
        If an MSE lies more than two standard errors below 0.

    Raises
    ------
    kaestat.baselines.workbench.FaultyBaseline
        If a baseline of your own fails `kaestat.check`.
    ValueError
        If a method is unknown, no visit qualifies, or the log has one completion per visit throughout: then only
        differences between methods are identified (`risk_differences`).
    TypeError
        If ``log`` has another type, or ``methods`` is not a list.
    """
    n_boot = draws_of(n_boot)
    log = log if prior is None else log_with_prior(as_log(log), prior)
    scored = prompt_risks(log, [*listed(methods), "grpo"], min_visits=min_visits, again=n_boot > 0, seed=seed)
    return scored.risk_table(n_boot=n_boot, seed=seed)


def risk_differences(
    log: RewardLog | pd.DataFrame,
    methods: Sequence[str | Baseline],
    reference: str | Baseline = "grpo",
    *,
    n_boot: int = 1000,
    seed: int = 0,
    min_visits: int = 1,
    prior: Prior | Mapping[Hashable, tuple[float, int]] | str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Paired differences of value MSE between methods and a reference on the same data.

    Differences need no within-group variance, so they are identified with one completion per visit too.

    Parameters
    ----------
    log, methods, n_boot, seed, min_visits, prior
        As in `value_risk`.
    reference : str or Baseline
        The method to compare with.

    Returns
    -------
    DataFrame
        One row per method: ``method, reference, difference`` (negative if the method is better), its ``se`` over
        prompts and 95 % interval ``ci_low, ci_high``; ``ratio`` of the MSEs with its interval ``ratio_low,
        ratio_high`` (NaN with one completion per visit, or without bootstrap); ``n_prompts, n_visits``. If
        either method pools prompts, the errors are those of the jackknife in `value_risk`, else of the bootstrap.

    Raises
    ------
    ValueError
        As in `value_risk`, but logs with one completion per visit are allowed; for these, methods that contain their
        own reward are refused.
    """
    n_boot = draws_of(n_boot)
    log = log if prior is None else log_with_prior(as_log(log), prior)
    scored = prompt_risks(
        log, [*listed(methods), reference], min_visits=min_visits, differences_only=True, again=n_boot > 0, seed=seed
    )
    unidentified = ~np.isfinite(scored.per_prompt).all(axis=0)
    if unidentified.any():
        raise ValueError(
            f"{scored.methods[int(np.argmax(unidentified))]}: contains the completion's own reward, and with one "
            "completion per visit its risk is not identified, not even differences."
        )
    warn_of_few(scored.methods[:-1], scored.per_prompt[:, :-1] - scored.per_prompt[:, -1:])
    return scored.difference_table(n_boot=n_boot, seed=seed)


def risk_baseline(method: str | Baseline) -> Baseline:
    """The baseline whose risk is reported for a method: unchanged, or in leave-one-out form.

    Leave-one-out are ``grpo`` and ``reinforce++``, as in the paper, and medians and quantiles, for which no correction
    for the own reward exists.
    """
    if isinstance(method, Baseline):
        baseline, name = method, type(method).__name__
    else:
        name, params = parse_method(method)
        baseline = make_baseline(name, **params)
    if baseline.missing_input is not None:
        raise ValueError(f"method {name!r} needs {baseline.missing_input}: pass a Baseline object that has it.")
    left_out = name in LEAVE_ONE_OUT_METHODS or not baseline.estimates_mean
    return baseline.leave_one_out() if left_out else baseline


def prompt_risks(
    log: RewardLog | pd.DataFrame,
    methods: Sequence[str | Baseline],
    *,
    min_visits: int = 1,
    differences_only: bool = False,
    again: bool = False,
    seed: int = 0,
) -> PromptRisks:
    """The risks of every method, from a replay; the last one is the reference of the tables.

    With ``differences_only`` the log may have one completion per visit; its risks are known up to a constant. With
    ``again`` methods that pool prompts are also replayed without each group of prompts, drawn from ``seed``, for
    intervals. Errors are as for `value_risk`.
    """
    log = as_log(log)
    if len(methods) < 2:
        raise ValueError("methods is empty: name at least one, for example 'kae'.")
    for method in methods:
        if isinstance(method, Baseline):
            check_unknown(method, log.prompts)
    low, high = reward_range(log)
    baselines = [on_range(risk_baseline(method), low, high) for method in methods]
    absolute = not differences_only or bool((log.prompt_units.counts > 1).any())
    eligible = eligible_visits(log, min_visits, absolute)

    rows = [Scored(method, baseline) for method, baseline in zip(methods, baselines, strict=True)]
    return scored_prompts(log, rows, Measure(absolute), eligible, again=again, seed=seed)


def scored_prompts(
    log: RewardLog, rows: Sequence[Scored], measure: Measure, eligible: np.ndarray, *, again: bool, seed: int
) -> PromptRisks:
    """The scores of every row on the eligible visits, and for pooling rows also without each group of prompts."""
    per_prompt, size, scored = _scores(log, rows, measure, eligible)
    pooled = tuple(row.baseline.pools_prompts for row in rows)
    left_out = apart = None
    if again and any(pooled) and len(size) > 1:
        group = np.full(len(log.prompts), -1)
        group[scored] = jackknife_groups(len(size), seed=seed, n_groups=REPLAYS)
        left_out, apart = _without_groups(log, rows, measure, eligible, group, (per_prompt, size, scored))
    risks = contributions(per_prompt, size)
    names = tuple(row.name for row in rows)
    return PromptRisks(names, risks, int(eligible.sum()), measure.absolute, pooled, left_out, apart)


def _scores(
    log: RewardLog, rows: Sequence[Scored], measure: Measure, eligible: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of each scored prompt, (C, M), its size, (C,), and which prompts are scored."""
    prompt = log.prompt_units.visit_prompt[eligible]
    scored = np.bincount(prompt, minlength=len(log.prompts)) > 0
    size: np.ndarray = np.ones(int(scored.sum()))
    if measure.column is not None:
        size = np.bincount(prompt, weights=measure.visit_sizes(log)[eligible], minlength=len(log.prompts))[scored]
    per_prompt = np.empty((len(size), len(rows)))
    for columns in rows_alike(rows):
        per_prompt[:, columns] = prompt_means(log, rows[columns[0]], eligible, measure)[:, None]
    return per_prompt, size, scored


def _without_groups(
    log: RewardLog,
    rows: Sequence[Scored],
    measure: Measure,
    eligible: np.ndarray,
    group: np.ndarray,
    scores: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Means of every row without each group of prompts: of a replay where it pools prompts, and of the same scores.

    Both have shape (K, M). Of a large log only the beginning is replayed. Pasts are short there, so prompts depend most
    on each other.
    """
    seen = np.flatnonzero(eligible)
    if len(seen) > LARGE:
        log, there = log.until(int(log.prompt_units.visit_step[seen[LARGE - 1]]))
        eligible, group = eligible[: log.n_visits], group[there]
        scores = _scores(log, rows, measure, eligible)
    per_prompt, size, scored = scores
    apart = np.empty((int(group.max()) + 1, len(rows)))
    left_out = np.empty_like(apart)
    for k in range(len(apart)):
        rest = group != k
        part, counted, kept = log.subset(rest), eligible[rest[log.prompt_units.visit_prompt]], rest[scored]
        apart[k] = left_out[k] = sized_mean(per_prompt[kept], size[kept, None])
        for columns in rows_alike(rows):
            if (row := rows[columns[0]]).baseline.pools_prompts:
                left_out[k, columns] = sized_mean(prompt_means(part, row, counted, measure), size[kept])
    return left_out, apart


def draws_of(n_boot: int) -> int:
    """The number of bootstrap draws: 0, or enough for an interval; a ValueError if it is another number."""
    if check_whole("n_boot", n_boot, least=0) not in range(1, FEWEST_DRAWS):
        return int(n_boot)
    raise ValueError(
        f"n_boot must be {FEWEST_DRAWS} or more, got {n_boot}: fewer draws have no 2.5 % quantile. 0 gives Student's "
        "interval without a bootstrap."
    )


def listed(methods: Sequence[str | Baseline]) -> list[str | Baseline]:
    """The methods as a list; a TypeError if they are not a list, for example a single name."""
    if isinstance(methods, str) or not isinstance(methods, Iterable):
        raise TypeError(f"methods must be a list of names, specifications or baselines, got {methods!r}.")
    return list(methods)


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
        how = f"lower {named('min_visits')}" if most else f"every prompt occurs once: set {named('min_visits')} to 0"
        raise ValueError(f"no visit has {min_visits} earlier ones (the most is {most}); {how}.")
    return eligible
