"""Rows of tables as text, the same on the terminal and in the report."""

import math
from collections.abc import Iterator
from typing import Any

from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.spelling import counted
from kaestat.report.analysis import Analysis
from kaestat.report.facts import LogFacts
from kaestat.report.unit import Unit, number
from kaestat.smoothing.selectors import BandwidthSelection

DIFFERENCE = "difference to default"
RISK_HEADER = (
    "method", "MSE", "standard error", "95 % interval", "ratio to grpo", DIFFERENCE, "its 95 % interval",
)  # fmt: skip
DIFFERENCE_HEADER = ("method", DIFFERENCE, "standard error", "95 % interval")
NO_PAST = " (no past in reach)"
PATH_HEADER = ("bandwidth", "risk", "standard error", "standard error of the difference to the lowest")


def fact_lines(facts: LogFacts) -> Iterator[str]:
    """The main facts about the log, in a few lines."""
    yield (
        f"{counted(facts.n_completions, 'completion')} of {counted(facts.n_prompts, 'prompt')}; "
        f"{counted(facts.n_visits, 'visit')}, "
        f"{_span(facts.visits_per_prompt)} per prompt; groups of {_span(facts.group_size)}."
    )
    axis = "training step" if facts.time_axis == "step" else "visit index of each prompt (no training steps known)"
    gap = facts.return_gap
    returns = "no prompt comes back" if gap is None else f"prompts return after {gap:g} (median)"
    yield f"Time axis: {axis}; {counted(facts.n_steps, facts.time_axis)}; {returns}."
    yield (
        f"Mean {'accuracy' if facts.binary else 'reward'}: {facts.reward_start:.3f} over the first tenth of the "
        f"run, in whole steps, {facts.reward_end:.3f} over the last."
    )
    if facts.dead_groups is not None:
        alike = "all right or all wrong" if facts.binary else "with all rewards alike"
        yield (
            f"Dead groups ({alike}; without a history they give no gradient): {100 * facts.dead_groups:.0f} % of the "
            "groups of two completions or more."
        )


def records(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of columns, as of `Analysis.risk_columns`."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def unit_of(analysis: Analysis) -> Unit:
    """The unit of all risks of an analysis."""
    risk = analysis.risk_columns
    return Unit.of(analysis.difference_columns["difference"] if risk is None else risk["mse"])


def unit_line(analysis: Analysis) -> str:
    """A line that explains the numbers of the main table."""
    what = "Differences of MSE" if analysis.risk_columns is None else "MSE and differences"
    return f"{what} are in units of {unit_of(analysis).name}. Standard errors are over prompts."


def comparison(analysis: Analysis) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of the main table: the MSE of each method, or only differences if no more is known."""
    unit = unit_of(analysis)
    to_default = [row for row in records(analysis.difference_columns) if row["reference"] == DEFAULT_METHOD]
    difference: dict[str, tuple[str, str, str]] = {}
    for row in to_default:
        gap = unit.signed(row["difference"]), unit.number(row["se"]), unit.interval(row["ci_low"], row["ci_high"])
        difference[str(row["method"])] = gap
    difference[DEFAULT_METHOD] = ("reference", "", "")
    if analysis.risk_columns is None:
        names = [str(row["method"]) for row in to_default]
        return DIFFERENCE_HEADER, [(_shown(analysis, name), *difference[name]) for name in names]
    rows: list[tuple[str, ...]] = []
    for row in records(analysis.risk_columns):
        method = str(row["method"])
        gap_to_default, _, gap_interval = difference[method]
        level = unit.number(row["mse"]), unit.number(row["se"]), unit.interval(row["ci_low"], row["ci_high"])
        ratio = number(row["vs_grpo"], ".3f")
        rows.append((_shown(analysis, method), *level, ratio, gap_to_default, gap_interval))
    return RISK_HEADER, rows


def path_rows(selection: BandwidthSelection, unit: Unit) -> list[tuple[str, ...]]:
    """Rows of a selector's risk path."""
    return [
        (f"{row['bandwidth']:.2f}", *(unit.number(row[name]) for name in ("risk", "se", "difference_se")))
        for row in selection.path.to_dict("records")
    ]


def selection_line(selection: BandwidthSelection, kernel: str) -> str:
    """The selected bandwidth in one sentence."""
    error = "" if math.isnan(selection.se) else f" (standard error {selection.se:.2f})"
    line = (
        f"By {selection.selector}, {kernel} kernel: bandwidth {selection.bandwidth:.2f} {selection.time_axis}s{error}."
    )
    ends = [float(selection.path["bandwidth"].iloc[end]) for end in (0, -1)] if len(selection.path) else []
    if len(set(ends)) > 1 and selection.bandwidth in ends:
        line += (
            f" This is the {'shortest' if selection.bandwidth == ends[0] else 'longest'} of the grid, {ends[0]:.2f} to "
            f"{ends[1]:.2f}; the best one may lie beyond."
        )
    return line


def _shown(analysis: Analysis, method: str) -> str:
    return method + NO_PAST if method in analysis.out_of_reach else method


def _span(ends: tuple[int, int]) -> str:
    low, high = ends
    return f"{low}" if low == high else f"{low} to {high}"
