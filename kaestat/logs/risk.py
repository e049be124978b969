"""Predictive risk: the unbiased value MSE of any baseline, from the rewards of a run alone.

A leave-one-out value is independent of its own reward given the past, so ``E (Z - Vhat)^2 = Var(Z) + MSE(Vhat)``, and
``Var(Z)`` has the unbiased within-group estimate. For a baseline that contains its own reward with weight w,
``2 w Var(Z)`` is added back.

Prompts are independent contributions to the risk of a baseline that looks at each prompt alone, and a bootstrap over
prompts gives intervals. Where a baseline pools prompts (`Baseline.pools_prompts`), an error that they share is in all
of them, and such intervals are too short; there the log is replayed again without each of some groups of prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kaestat.baselines.base import Baseline
from kaestat.checks import check_whole
from kaestat.logs.jackknife import jackknife_groups
from kaestat.logs.prompt_risks import PromptRisks, contributions, sized_mean
from kaestat.logs.replay import replay
from kaestat.logs.reward_log import RewardLog, as_log
from kaestat.logs.reward_range import reward_range
from kaestat.registry import make_baseline, parse_method
from kaestat.spelling import named
from kaestat.visit_error import unbiased_error

FEWEST_DRAWS = 40  # fewer have no quantile of 2.5 %
LEAVE_ONE_OUT_METHODS = ("grpo", "reinforce++")  # as in the paper's Table 1


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
    from a delete-a-group jackknife: the log is replayed again without each of 10 groups of prompts, and the interval is
    Student's with 9 degrees of freedom. Such a method takes 11 times as long as without intervals. With fewer prompts
    each is a group, and with a single one there is no interval (NaN).

    Raises
    ------
    ValueError
        If a method is unknown, no visit qualifies, or the log has one completion per visit throughout: then only
        differences between methods are identified (`risk_differences`).
    TypeError
        If ``log`` is neither, or ``methods`` no list.
    """
    n_boot = draws_of(n_boot)
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
        log, [*listed(methods), reference], min_visits=min_visits, differences_only=True, again=n_boot > 0, seed=seed
    )
    unidentified = ~np.isfinite(scored.per_prompt).all(axis=0)
    if unidentified.any():
        raise ValueError(
            f"{scored.methods[int(np.argmax(unidentified))]}: contains the completion's own reward, and with one "
            "completion per visit its risk is not identified, not even differences."
        )
    return scored.difference_table(n_boot=n_boot, seed=seed)


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
        Replay methods that pool prompts again without groups of prompts, for intervals: 20 replays more of each.
    seed : int
        Of the groups.
    track : callable
        Wraps the sequence that is worked through, for a progress bar.

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

    def score(part: RewardLog, baseline: Baseline) -> tuple[np.ndarray, np.ndarray]:
        return _prompt_risks(part, baseline, min_visits=min_visits, absolute=absolute)

    return scored_prompts(
        log, methods, baselines, score, eligible, absolute=absolute, again=again, seed=seed, track=track
    )


def scored_prompts(
    log: RewardLog,
    methods: Sequence[Hashable],
    baselines: Sequence[Any],
    score: Callable[[RewardLog, Any], tuple[np.ndarray, np.ndarray]],
    eligible: np.ndarray,
    *,
    absolute: bool,
    again: bool,
    seed: int,
    track: Callable[[Sequence[Any]], Iterable[Any]],
) -> PromptRisks:
    """Score every method on the log and, where it pools prompts, again without each group of prompts.

    Parameters
    ----------
    log : RewardLog
    methods : sequence
        Names of the rows; equal ones are replayed again once.
    baselines : sequence, as long
        What ``score`` takes, each with ``pools_prompts``.
    score : callable
        ``score(log, baseline)`` is the risk of each prompt that has any, and its size in the mean over prompts.
    eligible : ndarray of bool, shape (W,)
        Visits that are scored.
    absolute, again, seed, track
        See `prompt_risks`.
    """
    scored = np.bincount(log.prompt_units.visit_prompt[eligible], minlength=len(log.prompts)) > 0
    pooled = tuple(baseline.pools_prompts for baseline in baselines)
    first = [methods.index(method) if _is_specified(method) else m for m, method in enumerate(methods)]
    repeated = [m for m, pools in enumerate(pooled) if pools and first[m] == m] if again else []
    group = np.full(len(log.prompts), -1)
    group[scored] = jackknife_groups(int(scored.sum()), seed=seed)
    n_groups = int(group.max()) + 1 if repeated and scored.sum() > 1 else 0
    tracked = iter(track([*baselines, *[baselines[m] for m in repeated] * n_groups]))
    found = [score(log, next(tracked)) for _ in baselines]
    risk, size = (np.stack(columns, axis=1) for columns in zip(*found, strict=True))
    rests = [group[scored] != k for k in range(n_groups)]
    left_out = np.array([sized_mean(risk[rest], size[rest]) for rest in rests])
    for k in range(n_groups):
        part = log.subset(group != k)
        for m in repeated:
            left_out[k, m] = sized_mean(*score(part, next(tracked)))
    next(tracked, None)  # lets a progress bar end
    n_visits = int(eligible.sum())
    return PromptRisks(
        tuple(methods),
        contributions(risk, size),
        n_visits,
        absolute,
        pooled,
        left_out[:, first] if again and len(left_out) else None,
    )


def _is_specified(method: Any) -> bool:
    """Whether a row is named by text, alone or first of several, so that equal ones are the same method."""
    return isinstance(method[0] if isinstance(method, tuple) else method, str)


def _prompt_risks(
    log: RewardLog, baseline: Baseline, *, min_visits: int, absolute: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Mean risk over the eligible visits of each prompt that has any; every prompt has the same size in the mean."""
    eligible = eligible_visits(log, min_visits, absolute)
    prompt = log.prompt_units.visit_prompt[eligible]
    n = np.bincount(prompt, minlength=len(log.prompts))
    risk = visit_risk(log, baseline, absolute=absolute)[eligible]
    risk = np.bincount(prompt, weights=risk, minlength=len(log.prompts))[n > 0] / n[n > 0]
    return risk, np.ones_like(risk)


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


def listed(methods: Sequence[str | Baseline]) -> list[str | Baseline]:
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
    units = log.prompt_units
    values, own_derivatives = replay(log, baseline)
    loss = np.add.reduceat((units.reward - values) ** 2, units.first) / units.counts
    own = np.add.reduceat(own_derivatives, units.first) / units.counts
    return unbiased_error(loss, own, units.variance, absolute=absolute)
