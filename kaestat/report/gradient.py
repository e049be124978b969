"""The gradient noise on a log with weights: how much each baseline leaves, and whether weights matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

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
from kaestat.report.recommendation import complexity, lowest_of, shares
from kaestat.report.setting import Setting
from kaestat.report.unit import UNKNOWN, Estimate

DEFAULT_METHODS = ("none", "grpo", "reinforce++", "kae", "kae_eb")  # each is replayed once more for every weighting
SIMPLEST_WEIGHTS = ("length", "score_norm")  # lengths cost nothing, score norms a forward pass
# Of weighted rows that are tied the one whose noise is near the least in every setting of the study best_baselines.
# Others have up to twice the least, some where wrong answers are few and heavy: what a log may not have shown yet.
SAFEST = "kae_eb"
WITHOUT_HISTORY = "reinforce++"


@dataclass(frozen=True, eq=False)
class GradientAnalysis:
    """The gradient noise of several methods, and conclusions."""

    noise: pd.DataFrame  # `kaestat.gradient_risk` of the methods, lowest first
    ratio: Estimate  # `kaestat.logs.weight_ratio`
    value: str  # The method that is recommended for the value
    plain: str  # The row of lowest noise among those whose values are averaged without weights
    row: str  # Of the weighted rows tied for the lowest noise `SAFEST`, or else the simplest; empty without any
    weights: str
    setting: Setting  # What gives a run the method of that row
    saving: Estimate  # Share by which its noise is below that of ``plain``
    misled: bool  # Whether ``plain`` is no baseline at all and shown to leave less noise than ``value``
    by_history: Estimate  # Share by which a history lowers the noise of the batch mean with the same weights, or NaN
    law: LawAnalysis | None  # What the law of the baseline predicts, where it applies

    @property
    def by_length(self) -> bool:
        """Whether lengths, a stand-in for score norms, measure the noise."""
        return str(self.noise["measured_by"].iloc[0]) != "score_norm"

    @property
    def matter(self) -> bool:
        """Whether the weighted row is the one to use: it is shown to leave less noise than ``plain``."""
        return self.saving[1] > 0

    def reduction(self, method: str, weights: str = PLAIN) -> Estimate:
        """Reduction of a row's noise compared with GRPO's group mean; NaN without such a row."""
        rows = self.noise[(self.noise["method"].map(str) == method) & (self.noise["weights"] == weights)]
        if rows.empty:
            return UNKNOWN
        ratio, low, high = rows[["vs_grpo", "vs_grpo_low", "vs_grpo_high"]].iloc[0].tolist()
        return 1 - ratio, 1 - high, 1 - low


def analyze_gradient(
    log: RewardLog,
    methods: Sequence[str | Baseline] | None,
    also: str,
    *,
    n_boot: int,
    seed: int,
    min_visits: int,
) -> GradientAnalysis:
    """The noise that each method leaves in the gradient.

    ``methods`` defaults to `DEFAULT_METHODS` and ``also``, the method recommended for the value.
    """
    value = also.removesuffix(MARK)
    named = list(dict.fromkeys((*DEFAULT_METHODS, value))) if methods is None else methods
    unbiased = [method for method in named if not risk_baseline(method).leave_one_out().includes_own]
    rows = rows_of(log, unbiased or ["none"])
    draw: dict[str, Any] = {"n_boot": n_boot, "seed": seed}
    scored = gradient_scores(log, [*rows, *map(Row, REFERENCES)], min_visits=min_visits, again=n_boot > 0, seed=seed)
    mean = scored.per_prompt.mean(axis=0)
    weighted = [k for k, row in enumerate(rows) if row.weights != PLAIN]
    plain = min((k for k, row in enumerate(rows) if row.weights == PLAIN), key=lambda k: mean[k])
    of_value = [k for k, row in enumerate(rows) if row.weights == PLAIN and str(row.method) == value]
    nothing = isinstance(risk_baseline(rows[plain].method), Zero)
    misled = nothing and any(float(_gap(scored, plain, k, draw).ci_high) < 0 for k in of_value)
    row, saving = Row("", PLAIN), UNKNOWN
    if weighted:
        open_to = lowest_of(scored, weighted, plain, **draw)[2]
        ranked = sorted(open_to, key=lambda k: (complexity(rows[k]), SIMPLEST_WEIGHTS.index(rows[k].weights), mean[k]))
        chosen = min(ranked, key=lambda k: not _is_safest(rows[k]))
        row, saving = rows[chosen], shares(_gap(scored, chosen, plain, draw), float(mean[plain]))
    table = gradient_table(scored, log, None, **draw)
    return GradientAnalysis(
        noise=table.sort_values("noise", kind="stable", ignore_index=True),
        ratio=weight_ratio(log, measure_of(log, None), **draw),
        value=value,
        plain=str(rows[plain].method),
        row=str(row.method),
        weights=row.weights,
        setting=Setting.of(row.method, log) if weighted else Setting("", {}),
        saving=saving,
        misled=misled,
        by_history=_by_history(scored, rows, draw),
        law=LawAnalysis.of(log, seed=seed, min_visits=min_visits),
    )


def _by_history(scored: PromptRisks, rows: Sequence[Row], draw: dict[str, Any]) -> Estimate:
    """What the past is worth beyond the weights: `SAFEST` against `WITHOUT_HISTORY`, weighted alike."""
    for weights in reversed(SIMPLEST_WEIGHTS):  # score norms where there are both
        alike = [k for k, row in enumerate(rows) if row.weights == weights]
        past = [k for k in alike if _is_safest(rows[k])]
        without = [k for k in alike if str(rows[k].method) == WITHOUT_HISTORY]
        if past and without:
            mean = float(scored.per_prompt.mean(axis=0)[without[0]])
            return shares(_gap(scored, past[0], without[0], draw), mean)
    return UNKNOWN


def _gap(scored: PromptRisks, row: int, reference: int, draw: dict[str, Any]) -> Any:
    """The row of the table of differences that compares two rows."""
    return next(scored.take([row, reference]).difference_table(**draw).itertuples())


def _is_safest(row: Row) -> bool:
    return isinstance(row.method, str) and parse_method(row.method.removesuffix(MARK))[0] == SAFEST
