"""Gradient risk: the noise of the policy gradient under any leave-one-out baseline, from the log of one run.

A completion contributes ``w s (R - b)``, with its score ``s = grad log pi`` and its importance ratio w. Its noise is
``E[W (R - b)^2]`` with ``W = w^2 ||s||^2``, less the squared norm of its mean, which no baseline changes. A
leave-one-out value knows nothing of its own reward, so that the mean of ``W (Z - b)^2`` is unbiased, also for single
completions. The best baseline is ``E[W Z] / E[W]`` (Greensmith et al., 2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kaestat.baselines import Zero
from kaestat.baselines.base import Baseline
from kaestat.baselines.reward_range import on_range
from kaestat.logs.prompt_risks import INTERVAL, SIZES, PromptRisks, warn_of_few
from kaestat.logs.reward_log import WEIGHTINGS, RewardLog, as_log
from kaestat.logs.reward_range import reward_range
from kaestat.logs.risk import draws_of, eligible_visits, listed, risk_baseline, scored_prompts
from kaestat.logs.scoring import Measure, Scored

if TYPE_CHECKING:
    import pandas as pd

NAMES = {"weight": "score_norm", "length": "length"}  # as the trainers spell what completions are weighted by
PLAIN = "none"
MEASURED_BY = {"weight": "score_norm", "length": "length (proxy)"}
REFERENCES = ("grpo", "none")
RATIOS = [f"vs_{name}{end}" for name in REFERENCES for end in ("", "_low", "_high")]
GRADIENT_COLUMNS = ["method", "weights", "noise", *INTERVAL, *RATIOS, "measured_by", *SIZES]


class Row(NamedTuple):
    """A method and the weights of its averages."""

    method: str | Baseline  # As given
    weights: str = PLAIN  # ``"none"``, ``"score_norm"`` or ``"length"``, as in the trainers

    def __str__(self) -> str:
        return str(self.method) if self.weights == PLAIN else f"{self.method}, weights={self.weights}"


def gradient_risk(
    log: RewardLog | pd.DataFrame,
    methods: Sequence[str | Baseline],
    *,
    weights: str | None = None,
    n_boot: int = 1000,
    seed: int = 0,
    min_visits: int = 1,
) -> pd.DataFrame:
    """Noise of the policy gradient, ``E[W (R - b)^2]`` per completion, of each method along the run.

    Parameters
    ----------
    log : RewardLog or DataFrame
        A log with weights (squared score norms) or lengths; a DataFrame has one completion per row and the usual
        column names (use `RewardLog.from_frame` for others).
    methods : sequence of str or Baseline
        As in `value_risk`, in leave-one-out form. Methods without one (``ebpo``, ``krpo``) are refused: their gradient
        is biased. Methods that accept weights have one more row for each weight column of the log.
    weights : {"weight", "length"}, optional
        The column for W (`RewardLog.completion_weights`); None uses the weights if the log has them, else the lengths,
        a stand-in for the squared score norm.
    n_boot, seed
        As in `value_risk`, including the jackknife of methods that pool prompts.
    min_visits : int
        Only completions of visits with at least this many earlier ones of the same prompt count.

    Returns
    -------
    DataFrame
        One row per method and weighting: ``method`` as given; ``weights``, the weights of its averages:
        ``"none"``, ``"score_norm"`` or ``"length"``; ``noise``, its standard error ``se`` over prompts and interval
        ``ci_low, ci_high``; ``vs_grpo`` and ``vs_none``, the ratios to the noise of GRPO's leave-one-out mean and to
        the noise without a baseline, with intervals (``_low``, ``_high``; NaN without bootstrap); ``measured_by``, the
        meaning of W: ``"score_norm"`` or ``"length (proxy)"``; ``n_prompts`` and ``n_visits`` used.

    Notes
    -----
    The noise is a mean over *completions* and not over prompts' means as in `value_risk`. Errors are clustered by
    prompt, as those of a ratio of two sums over prompts.

    Warns
    -----
    FewPromptsWarning
        As in `kaestat.value_risk`.

    Raises
    ------
    ValueError
        If a method is unknown or contains the completion's own reward, no visit qualifies, the log has neither weights
        nor lengths or not those asked for, or all of them are 0.
    TypeError
        If ``log`` has another type, or ``methods`` is not a list.

    References
    ----------
    Greensmith, Bartlett and Baxter (2004), Variance reduction techniques for gradient estimates in reinforcement
    learning. Hao et al. (2025), On-policy RL with optimal reward baseline (OPO): lengths as weights.

    Examples
    --------
    One of four answers is wrong and has nine times the squared score norm of a right one: the best baseline is 1/4.

    >>> log = RewardLog(["a"] * 80, [k // 4 for k in range(80)], [1, 1, 1, 0] * 20, weight=[1, 1, 1, 9] * 20)
    >>> table = gradient_risk(log, ["none", "kae:bandwidth=50"], n_boot=0)
    >>> table[["method", "weights", "noise", "vs_none"]].round(2)
                 method     weights  noise  vs_none
    0              none        none   0.75     1.00
    1  kae:bandwidth=50        none   1.42     1.89
    2  kae:bandwidth=50  score_norm   0.62     0.82
    """
    n_boot = draws_of(n_boot)
    log = as_log(log)
    rows = rows_of(log, listed(methods))
    scored = gradient_scores(
        log, [*rows, *map(Row, REFERENCES)], weights=weights, min_visits=min_visits, again=n_boot > 0, seed=seed
    )
    return gradient_table(scored, log, weights, n_boot=n_boot, seed=seed)


def gradient_differences(
    log: RewardLog | pd.DataFrame,
    methods: Sequence[str | Baseline],
    reference: str | Baseline = "grpo",
    *,
    weights: str | None = None,
    n_boot: int = 1000,
    seed: int = 0,
    min_visits: int = 1,
) -> pd.DataFrame:
    """Paired differences of gradient noise between methods and a reference on the same data.

    Parameters
    ----------
    log, methods, weights, n_boot, seed, min_visits
        As in `gradient_risk`.
    reference : str or Baseline
        The method to compare with, its values averaged without weights.

    Returns
    -------
    DataFrame
        One row per method and weighting: ``method, weights, reference, difference`` (negative if the method
        leaves less noise), its ``se`` over prompts and 95 % interval ``ci_low, ci_high``; ``ratio`` of the noises with
        its interval ``ratio_low, ratio_high``; ``n_prompts, n_visits``.

    Warns
    -----
    FewPromptsWarning
        As in `gradient_risk`, for differences.

    Raises
    ------
    ValueError, TypeError
        As in `gradient_risk`.
    """
    n_boot = draws_of(n_boot)
    log = as_log(log)
    rows = [*rows_of(log, listed(methods)), Row(reference)]
    scored = gradient_scores(log, rows, weights=weights, min_visits=min_visits, again=n_boot > 0, seed=seed)
    warn_of_few(rows[:-1], scored.per_prompt[:, :-1] - scored.per_prompt[:, -1:])
    table = scored.difference_table(n_boot=n_boot, seed=seed)
    names: Any = [reference] * len(table)
    return _in_two_columns(table).assign(reference=names)


def rows_of(log: RewardLog, methods: Sequence[str | Baseline]) -> list[Row]:
    """The rows of every method: unweighted and, if it accepts weights, with each weight column of the log."""
    if not methods:
        raise ValueError("methods is empty: name at least one, for example 'kae'.")
    weighted = [NAMES[column] for column in log.weightings]
    rows = []
    for method in methods:
        baseline = risk_baseline(method)
        averages = baseline.takes_weights and not isinstance(baseline, Zero)
        ways = weighted if baseline.needs_weights else [PLAIN, *(weighted if averages else ())]
        rows += [Row(method, weights) for weights in ways]
    return rows


def gradient_scores(
    log: RewardLog,
    rows: Sequence[Row],
    *,
    weights: str | None = None,
    min_visits: int = 1,
    again: bool = False,
    seed: int = 0,
) -> PromptRisks:
    """The scores of all rows after replay; the references of the tables are at the end of ``rows``."""
    column = measure_of(log, weights)
    eligible = eligible_visits(log, min_visits, absolute=False)
    if not log.completion_weights(column)[np.repeat(eligible, log.prompt_units.counts)].any():
        raise ValueError(
            f"{column} is 0 for every completion that counts: there is no gradient, and so no noise. Fix the "
            f"column, or leave it out of the log."
        )
    scored = [_scored(log, row) for row in rows]
    return scored_prompts(log, scored, Measure(True, column), eligible, again=again, seed=seed)


def measure_of(log: RewardLog, weights: str | None) -> str:
    """The column to use as W: the one named, or the better one in the log."""
    return next(iter(log.weightings), WEIGHTINGS[0]) if weights is None else weights


def gradient_table(scored: PromptRisks, log: RewardLog, weights: str | None, *, n_boot: int, seed: int) -> pd.DataFrame:
    """The table of `gradient_risk` for all rows but the last two, which must be GRPO and no baseline."""
    draw: dict[str, Any] = {"n_boot": n_boot, "seed": seed}
    rows, references = range(len(scored.methods) - len(REFERENCES)), range(-len(REFERENCES), 0)
    compared = [scored.take([*rows, len(scored.methods) + k]) for k in references]
    table = _in_two_columns(compared[0].risk_table(**draw).rename(columns={"mse": "noise"}))
    for name, scores in zip(REFERENCES, compared, strict=True):
        ratios = scores.difference_table(**draw)
        for end in ("", "_low", "_high"):
            table[f"vs_{name}{end}"] = ratios[f"ratio{end}"]
    table["measured_by"] = MEASURED_BY[measure_of(log, weights)]
    return table[GRADIENT_COLUMNS]


def _scored(log: RewardLog, row: Row) -> Scored:
    baseline = on_range(risk_baseline(row.method).leave_one_out(), *reward_range(log))
    return Scored(row, baseline, next((column for column, name in NAMES.items() if name == row.weights), None))


def _in_two_columns(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose rows are named by `Row`, with the method and the weights in columns of their own."""
    rows: list[Any] = table["method"].tolist()
    table["method"] = [row.method for row in rows]
    table.insert(1, "weights", [row.weights for row in rows])
    return table
