"""The rows that people read, as text: the same on the terminal and in the report. Risks are shown times 1000."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kaestat.bandwidth import BandwidthSelection
from kaestat.report.analysis import Analysis, LogFacts

RISK_HEADER = ("method", "MSE", "se", "95 % interval", "/ grpo", "- kae", "95 % interval")
DIFFERENCE_HEADER = ("method", "MSE - kae", "se", "95 % interval")
UNIT = "In units of 0.001, but for the ratio to grpo; se is the standard error over prompts."
PATH_HEADER = ("bandwidth", "risk", "se", "se of difference to lowest")


def fact_lines(facts: LogFacts) -> Iterator[str]:
    """What the log holds, in a few lines."""
    yield (
        f"{facts.n_completions:,} completions of {facts.n_prompts:,} prompts; {facts.n_visits:,} visits, "
        f"{_span(facts.visits_per_prompt)} per prompt; groups of {_span(facts.group_size)}."
    )
    axis = "training step" if facts.time_axis == "step" else "visit index of each prompt (no training steps known)"
    yield f"Time axis: {axis}; {facts.n_steps:,} {facts.time_axis}s."
    yield (
        f"Mean {'accuracy' if facts.binary else 'reward'}: {facts.reward_start:.3f} over the first tenth of the "
        f"completions, {facts.reward_end:.3f} over the last."
    )


def headline(analysis: Analysis) -> str:
    """The main finding in one sentence."""
    if analysis.risk is None:
        best = analysis.differences.iloc[0]
        gap = f"{signed(best['difference'])} × 0.001 against kae ({interval(best['ci_low'], best['ci_high'])}); "
        return (
            f"{best['method']} has the lowest value MSE of these methods: {'' if best['method'] == 'kae' else gap}"
            "with one completion per visit, levels are not identified."
        )
    best = analysis.risk.iloc[0]
    return (
        f"{best['method']} has the lowest value MSE: {milli(best['mse'])} × 0.001 "
        f"({interval(best['ci_low'], best['ci_high'])}), {_number(best['vs_grpo'], '.2f')} times that of GRPO."
    )


def comparison(analysis: Analysis) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of the main table: MSE of each method, or only differences where there is no more."""
    row: Any
    to_kae = analysis.differences[analysis.differences["reference"] == "kae"]
    difference: dict[str, tuple[str, str, str]] = {}
    for row in to_kae.itertuples():
        difference[str(row.method)] = signed(row.difference), milli(row.se), interval(row.ci_low, row.ci_high)
    difference["kae"] = ("reference", "", "")
    if analysis.risk is None:
        return DIFFERENCE_HEADER, [(name, *difference[name]) for name in map(str, to_kae["method"])]
    rows: list[tuple[str, ...]] = []
    for row in analysis.risk.itertuples():
        gap, _, gap_interval = difference[str(row.method)]
        level = milli(row.mse), milli(row.se), interval(row.ci_low, row.ci_high)
        rows.append((str(row.method), *level, _number(row.vs_grpo, ".3f"), gap, gap_interval))
    return RISK_HEADER, rows


def path_rows(selection: BandwidthSelection) -> list[tuple[str, ...]]:
    """Rows of a selector's risk path."""
    return [
        (f"{row['bandwidth']:.2f}", milli(row["risk"]), milli(row["se"]), milli(row["difference_se"]))
        for row in selection.path.to_dict("records")
    ]


def selection_line(selection: BandwidthSelection, kernel: str) -> str:
    """The selected bandwidth in one sentence."""
    error = "" if math.isnan(selection.se) else f" (standard error {selection.se:.2f})"
    return (
        f"By {selection.selector}, {kernel} kernel: bandwidth {selection.bandwidth:.2f} {selection.time_axis}s{error}."
    )


def milli(risk: float) -> str:
    """A risk times 1000."""
    return _number(round(1e3 * risk, 2) + 0.0, ".2f")


def signed(difference: float) -> str:
    """A difference of risks times 1000, with its sign."""
    return _number(round(1e3 * difference, 2) + 0.0, "+.2f")  # + 0.0 turns -0.0 into 0.0


def interval(low: float, high: float) -> str:
    """An interval of risks times 1000."""
    return "-" if math.isnan(low) else f"{milli(low)} to {milli(high)}"


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)


def _span(ends: tuple[int, int]) -> str:
    low, high = ends
    return f"{low}" if low == high else f"{low} to {high}"
