"""The gradient noise on a log with weights: how much each baseline leaves, and whether weights matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kaestat.baselines import Zero
from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import parse_method
from kaestat.logs.gradient_risk import PLAIN, REFERENCES, Row, gradient_scores, gradient_table, measure_of, rows_of
from kaestat.logs.prompt_risks import PromptRisks
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import risk_baseline
from kaestat.logs.tuning import MARK
from kaestat.logs.weight_ratio import weight_ratio
from kaestat.report.law import LawAnalysis
from kaestat.report.recommendation import complexity, lowest_of
from kaestat.report.setting import Setting

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_METHODS = ("none", "grpo", "reinforce++", "kae", "kae_eb")  # each is replayed once more for every weighting
SIMPLEST_WEIGHTS = ("length", "score_norm")  # lengths cost nothing, score norms a forward pass
# Of weighted rows that are tied the one whose noise is near the least in every setting of the study best_baselines.
# Others have up to twice the least, some where wrong answers are few and heavy: what a log may not have shown yet.
SAFEST = "kae_eb"
WITHOUT_HISTORY = "reinforce++"
ROUNDING = 1e-6  # a smaller share of a noise is not a difference


@dataclass(frozen=True, eq=False)
class GradientAnalysis:
    """The gradient noise of several methods, and conclusions."""

    noise: pd.DataFrame  # `kaestat.gradient_risk` of the methods, lowest first
    # Mean weight of completions below the mean of their group over that of those above it
    # (`kaestat.logs.weight_ratio`), with a 95 % interval; NaN where no group has both
    ratio: float
    ratio_low: float
    ratio_high: float
    value: str  # The method that is recommended for the value
    plain: str  # The row of lowest noise among those whose values are averaged without weights
    # Of the weighted rows that are tied for the lowest noise `SAFEST`, or else the simplest; empty where no method
    # takes weights
    row: str
    weights: str
    simpler: str  # The simplest of these rows where `SAFEST` was taken in its place; empty where it was not
    setting: Setting  # What gives a run the method of that row
    saving: float  # Share by which its noise is below that of ``plain``
    saving_low: float
    saving_high: float
    # Whether ``plain`` is no baseline at all and shown to leave less noise than ``value``: values are not what to
    # subtract
    misled: bool
    # Whether the weighted row is the one to use: shown to leave less noise than ``plain``, or `SAFEST` and not shown to
    # leave more where values mislead and there are groups
    matter: bool
    # Share by which a weighted history lowers the noise of the batch mean with the same weights, which has no history;
    # NaN where one of them was not measured
    by_history: float
    by_history_low: float
    by_history_high: float
    # What the law of the baseline predicts; None where rewards are not 0 and 1, or no prompt comes back
    law: LawAnalysis | None

    @property
    def by_length(self) -> bool:
        """Whether lengths, a stand-in for score norms, measure the noise."""
        return str(self.noise["measured_by"].iloc[0]) != "score_norm"

    def reduction(self, method: str, weights: str = PLAIN) -> tuple[float, float, float] | None:
        """Reduction of a row's noise compared with GRPO's group mean, with interval; None without such a row."""
        rows = self.noise[(self.noise["method"].map(str) == method) & (self.noise["weights"] == weights)]
        found: Any = next(rows.itertuples(), None)
        return None if found is None else (1 - found.vs_grpo, 1 - found.vs_grpo_high, 1 - found.vs_grpo_low)


def analyze_gradient(
    log: RewardLog,
    methods: Sequence[str | Baseline] | None,
    also: str,
    *,
    n_boot: int,
    seed: int,
    min_visits: int,
    track: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> GradientAnalysis:
    """A comparison of methods by gradient noise, with and without weights, of a log with weights or lengths.

    ``methods`` are `DEFAULT_METHODS` by default; those whose values contain the completion's own reward are skipped.
    ``also`` is the row that the value's tables recommend, which takes part as well. Other arguments are as for
    `kaestat.report.analysis.analyze`.
    """
    value = also.removesuffix(MARK)
    named = list(dict.fromkeys((*DEFAULT_METHODS, value))) if methods is None else methods
    kept = [method for method in named if not risk_baseline(method).leave_one_out().includes_own]
    rows = rows_of(log, kept or ["none"])
    draw: dict[str, Any] = {"n_boot": n_boot, "seed": seed}
    scored = gradient_scores(
        log, [*rows, *map(Row, REFERENCES)], min_visits=min_visits, again=n_boot > 0, seed=seed, track=track
    )
    mean = scored.per_prompt.mean(axis=0)
    weighted = [k for k, row in enumerate(rows) if row.weights != PLAIN]
    plain = min((k for k, row in enumerate(rows) if row.weights == PLAIN), key=lambda k: mean[k])
    of_value = [k for k, row in enumerate(rows) if row.weights == PLAIN and str(row.method) == value]
    nothing = isinstance(risk_baseline(rows[plain].method), Zero)
    misled = nothing and any(float(_gap(scored, plain, k, draw).ci_high) < 0 for k in of_value)
    chosen, simplest, saving, matter = None, None, (np.nan, np.nan, np.nan), False
    if weighted:
        open_to = lowest_of(scored, weighted, plain, **draw)[2]
        ranked = sorted(open_to, key=lambda k: (complexity(rows[k]), SIMPLEST_WEIGHTS.index(rows[k].weights), mean[k]))
        simplest, chosen = ranked[0], min(ranked, key=lambda k: not _is_safest(rows[k]))
        gap = _gap(scored, chosen, plain, draw)
        saving = _shares(gap, float(mean[plain]))
        tied = bool(_is_safest(rows[chosen]) and gap.ci_low <= 0)
        # With single completions no baseline is what there is anyhow.
        matter = bool(saving[1] > 0 or (misled and tied and log.group_sizes.max() > 1))
    by_history = _by_history(scored, rows, draw)
    ratio = weight_ratio(log, measure_of(log, None), **draw)
    table = gradient_table(scored, log, None, **draw)
    row = Row("", PLAIN) if chosen is None else rows[chosen]
    return GradientAnalysis(
        noise=table.sort_values("noise", kind="stable", ignore_index=True),
        ratio=ratio[0],
        ratio_low=ratio[1],
        ratio_high=ratio[2],
        value=value,
        plain=str(rows[plain].method),
        row=str(row.method),
        weights=row.weights,
        simpler="" if simplest is None or simplest == chosen else str(rows[simplest]),
        setting=Setting("", {}) if chosen is None else Setting.of(row.method, log),
        saving=saving[0],
        saving_low=saving[1],
        saving_high=saving[2],
        misled=misled,
        matter=matter,
        by_history=by_history[0],
        by_history_low=by_history[1],
        by_history_high=by_history[2],
        law=LawAnalysis.of(log, table, seed=seed, min_visits=min_visits),
    )


def _by_history(scored: PromptRisks, rows: Sequence[Row], draw: dict[str, Any]) -> tuple[float, float, float]:
    """What the past is worth beyond the weights: `SAFEST` against `WITHOUT_HISTORY`, weighted alike.

    Named rows and not the lowest ones, since the lowest of several looks better than it is.
    """
    for weights in reversed(SIMPLEST_WEIGHTS):  # score norms where there are both
        alike = [k for k, row in enumerate(rows) if row.weights == weights]
        past = [k for k in alike if _is_safest(rows[k])]
        without = [k for k in alike if str(rows[k].method) == WITHOUT_HISTORY]
        if past and without:
            mean = float(scored.per_prompt.mean(axis=0)[without[0]])
            return _shares(_gap(scored, past[0], without[0], draw), mean)
    return np.nan, np.nan, np.nan


def _gap(scored: PromptRisks, row: int, reference: int, draw: dict[str, Any]) -> Any:
    """The row of the table of differences that compares two rows."""
    return next(scored.take([row, reference]).difference_table(**draw).itertuples())


def _is_safest(row: Row) -> bool:
    return isinstance(row.method, str) and parse_method(row.method.removesuffix(MARK))[0] == SAFEST


def _shares(gap: Any, level: float) -> tuple[float, float, float]:
    """By how much a noise is lower than a level, from a row of a table of differences."""
    if level <= 0:
        return np.nan, np.nan, np.nan
    ratio = (gap.ratio_low, gap.ratio_high)
    if not np.isfinite(ratio).all():  # without a bootstrap
        ratio = (1 + gap.ci_low / level, 1 + gap.ci_high / level)
    lower, low, high = (0.0 if abs(1 - each) < ROUNDING else float(1 - each) for each in (gap.ratio, *reversed(ratio)))
    return lower, low, high
