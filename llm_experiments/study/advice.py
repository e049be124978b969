"""What `kaestat analyze` says of a kept run, beside what its study measured: was the advice right?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.stats import spearmanr, t

from kaestat import RewardLog
from kaestat.core.bootstrap import cluster_bootstrap, mean_with_interval
from kaestat.report.gradient import WITHOUT_HISTORY, analyze_gradient
from kaestat.report.gradient_text import PAYING, history_verdict
from llm_experiments.training.stacked.config import Design

from .config import StudyConfig
from .contrasts import LEVEL, endpoints

METRICS = ("adam", "plain", "logits")
METHOD = "kae_eb"  # whose weighted history `kaestat analyze` compares with the weighted batch mean
N_BOOT = 1000
TIED = 9  # digits of predicted noise: that of GRPO and RLOO with two completions is the same but for rounding
ADVICE_COLUMNS = [
    "base",
    "log",
    "metric",
    "completions",
    "rho",
    "rho_low",
    "rho_high",
    "threshold",
    "threshold_low",
    "threshold_high",
    "saved",
    "saved_low",
    "saved_high",
    "predicted",
    "predicted_low",
    "predicted_high",
    "advice",
    "gap",
    "gap_se",
    "gap_low",
    "gap_high",
    "right",
    "correlation",
    "correlation_between",
]
"""``log`` is the design whose run is analysed. ``rho`` weighs all wrong against all right completions, ``threshold`` is
the rho from which on no baseline leaves less noise than the value. ``saved`` is the share of the noise that a weighted
history takes off a weighted batch mean in a replay, ``predicted`` the ratio of their noise by the law, and ``advice``
says whether a history pays. ``gap`` is what it paid: mean accuracy over the budget, the recommended design's less that
of the batch mean with its weights, paired by seed, with Student's interval over seeds. ``right`` is yes, no or open,
where the advice is that a history pays and the gap does not differ significantly from 0. The
correlations are Spearman's, of the predicted noise of designs and minus their mean accuracy, where between/within is 0,
and where it is that of worlds with short answers."""
ORDER_COLUMNS = ["base", "log", "metric", "design", "noise", "low", "high", "noise_between", "area", "area_se"]
"""``noise`` over that of the log's own design, with its interval, and ``area``, mean accuracy over the budget with its
standard error over seeds."""


def law_name(design: Design) -> str | None:
    """What the law calls a design; None if it says nothing of it."""
    if design.filtered or design.sampling != "uniform":
        return None
    weighted, pure = design.weights != "none", design.coding == "binary" and design.keys == "prompt"
    if design.group_size > 1:
        grouped = design.method in ("grpo", "rloo") and not weighted and pure
        return f"{design.method}_{design.group_size}" if grouped else None
    if design.method == "none":
        return "none" if design.coding == "binary" else "none_signed"
    if design.method == "kae" and design.keys == "all" and weighted and design.coding == "binary":
        return "weighted_constant"
    known = {"reinforce++": "batch_mean", METHOD: "history"}.get(design.method) if pure else None
    return f"weighted_{known}" if known and weighted else known


def without_history(designs: Mapping[str, Design], recommended: str) -> str | None:
    """The batch mean with the recommended design's weights; None if the study lacks it."""
    own = designs[recommended].weights
    for name, design in designs.items():
        if design.method == WITHOUT_HISTORY and design.weights == own and design.group_size == 1:
            return name
    return None


def log_of(rows: pd.DataFrame, metric: str) -> RewardLog:
    """The log of one run with one kind of norms, completions without any left out.

    Norms in Adam's units are taken over their mean of the step, as the studies' designs take them, since these units
    drift.

    Parameters
    ----------
    rows : DataFrame
        Columns `rows.ROW_COLUMNS`.
    metric : {"adam", "plain", "logits"}
    """
    kept = rows[rows[metric].notna()]
    weight = kept[metric]
    if metric == "adam":
        weight = weight / weight.groupby(kept["step"]).transform("mean")
    return RewardLog(kept["prompt"], kept["step"], kept["reward"], weight=weight)


def advice(
    config: StudyConfig, rows: pd.DataFrame, log: str, base: int, curves: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Advice from one run, with each kind of norms, beside what was measured on the same base model.

    Parameters
    ----------
    config : StudyConfig
    rows : DataFrame
        Columns `rows.ROW_COLUMNS`.
    log : str
        The design that was run.
    base : int
    curves : DataFrame
        Of all designs on this base model, columns ``design, base`` and those of `curves.CURVE_COLUMNS`.

    Returns
    -------
    advice : DataFrame
        Columns `ADVICE_COLUMNS`, one row for each kind of norms that the run has.
    order : DataFrame
        Columns `ORDER_COLUMNS`, one row for each design of which the law and the study both say something.
    """
    found = endpoints(curves, config.budget).xs(base, level="base").reset_index()
    area = found.pivot_table(index="seed", columns="design", values="area")
    paid = _paid(area, config)
    told, orders = [], []
    for metric in METRICS:
        own = log_of(rows, metric) if rows[metric].notna().any() else None
        if own is None:
            continue
        said = analyze_gradient(own, None, METHOD, n_boot=N_BOOT, seed=0, min_visits=1)
        law = said.law
        order = _order(config, None if law is None else law.table, area)
        verdict = history_verdict(said)
        told.append(
            (
                base,
                log,
                metric,
                len(own.frame),
                *pooled_ratio(own),
                *(_UNKNOWN if law is None else law.threshold),
                said.by_history,
                said.by_history_low,
                said.by_history_high,
                *(_UNKNOWN if law is None else law.to_batch),
                verdict,
                *paid,
                was_right(verdict, *paid[2:]),
                *(_rank(order[name], order["area"]) for name in _NOISE),
            )
        )
        orders.append(order.assign(base=base, log=log, metric=metric)[ORDER_COLUMNS])
    return pd.DataFrame(told, columns=ADVICE_COLUMNS), pd.concat(orders, ignore_index=True)


def was_right(verdict: str, low: float, high: float) -> str:
    """Whether advice on a history was right: yes, no, or open.

    Parameters
    ----------
    verdict : str
        From `kaestat.report.gradient_text.history_verdict`.
    low, high : float
        Interval of what a history paid; NaN where the study has no batch mean to compare with.
    """
    if not verdict or np.isnan(low) or np.isnan(high):
        return "open"
    if verdict == PAYING:
        return "yes" if low > 0 else "no" if high < 0 else "open"
    return "no" if low > 0 else "yes"


def pooled_ratio(log: RewardLog) -> tuple[float, float, float]:
    """Mean weight of all wrong completions over that of all right ones, with a 95 % interval over prompts.

    The interval is that of the logarithm, whose linear part is drawn. NaN where all are right or all are wrong.
    """
    prompt, right = log.frame["prompt"].to_numpy(), log.frame["reward"].to_numpy() == 1
    weight = log.completion_weights("weight")
    sums = np.stack(
        [np.bincount(prompt, each, len(log.prompts)) for each in (weight * ~right, ~right, weight * right, right)], 1
    )
    mean = sums.mean(0)
    if not (mean > 0).all():
        return np.nan, np.nan, np.nan
    linear = (np.log(mean) + sums / mean - 1) @ np.array([[1.0], [-1.0], [-1.0], [1.0]])
    ratio, _, low, high = mean_with_interval(linear, cluster_bootstrap(linear, n_boot=N_BOOT, seed=0))
    return float(np.exp(ratio[0])), float(np.exp(low[0])), float(np.exp(high[0]))


_NOISE = ("noise", "noise_between")
_UNKNOWN = (np.nan, np.nan, np.nan)  # where the law has nothing to say: no prompt came back, or all were right or wrong


def _order(config: StudyConfig, law: pd.DataFrame | None, area: pd.DataFrame) -> pd.DataFrame:
    rows = []
    predicted = pd.DataFrame() if law is None else law.set_index("design")
    for name, design in config.designs.items():
        known = law_name(design)
        if name in area and known in predicted.index:
            own = predicted.loc[known]
            rows.append((name, own["noise"], own["ci_low"], own["ci_high"], own["with_between"]))
    table = pd.DataFrame(rows, columns=["design", "noise", "low", "high", "noise_between"])
    table["area"], table["area_se"] = (area[table["design"]].agg(how).to_numpy() for how in ("mean", "sem"))
    return table


def _paid(area: pd.DataFrame, config: StudyConfig) -> tuple[float, float, float, float]:
    """What a history paid on a base model, its standard error over seeds, and Student's interval."""
    rival = without_history(config.designs, config.recommended)
    if rival is None or rival not in area or config.recommended not in area:
        return np.nan, np.nan, np.nan, np.nan
    gaps = (area[config.recommended] - area[rival]).dropna()
    mean, se = float(gaps.mean()), float(gaps.sem())
    half = float(t.isf((1 - LEVEL) / 2, len(gaps) - 1)) * se
    return mean, se, mean - half, mean + half


def _rank(noise: pd.Series, area: pd.Series) -> float:
    """Spearman's correlation of predicted noise and what was not learned; noises that differ by rounding are tied."""
    return float(spearmanr(noise.round(TIED), -area).statistic) if len(noise) > 2 else np.nan
