"""What an analysis found, as a document: its tables as text, and the facts about its log."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.spelling import counted
from kaestat.report.analysis import Analysis
from kaestat.report.document import Document, Table
from kaestat.report.facts import LogFacts
from kaestat.report.gradient_text import noise_table
from kaestat.report.headline import headline_parts, paste_lines, paste_notes
from kaestat.report.law import law_table
from kaestat.report.sampling import sampling_table
from kaestat.report.unit import PLAIN, Unit
from kaestat.smoothing.selectors import BandwidthSelection

DIFFERENCE = "difference to default"
RISK_HEADER = (
    "method", "MSE", "standard error", "95 % interval", "ratio to grpo", DIFFERENCE, "its 95 % interval",
)  # fmt: skip
DIFFERENCE_HEADER = ("method", DIFFERENCE, "standard error", "95 % interval")
PATH_HEADER = ("bandwidth", "risk", "standard error", "standard error of the difference to the lowest")


def analysis_document(analysis: Analysis, source: str, *, rows: int | None = None) -> Document:
    """The document of an analysis; with ``rows`` its main table has so many, and those that the headline names."""
    header, every = comparison(analysis)
    named = (analysis.recommendation.row, analysis.recommendation.rival)
    shown = [row for k, row in enumerate(every) if rows is None or k < rows or row[0] in named]
    more = len(every) - len(shown) + len(analysis.unscored)
    caption = f"{more} more methods with --all. {unit_line(analysis)}" if more else unit_line(analysis)
    tables = [Table("Value MSE of each method", header, shown, caption)]
    if analysis.gradient is not None:
        tables.append(noise_table(analysis.gradient))
    if analysis.law is not None:
        tables.append(law_table(analysis.law))
    if analysis.sampling is not None:
        tables.append(sampling_table(analysis.sampling))
    return Document(
        title=f"Baselines on {source}",
        headline=headline_parts(analysis),
        lines=paste_lines(analysis),
        remarks=paste_notes(analysis),
        facts=[(source, fact_lines(analysis.facts))],
        tables=tables,
        notes=list(analysis.notes),
    )


def frames(analysis: Analysis) -> dict[str, pd.DataFrame]:
    """The numbers behind the tables, by name; without those that the log does not identify or nobody asked for."""
    made = {
        "risk": analysis.risk,
        "differences": analysis.differences,
        "gradient": None if analysis.gradient is None else analysis.gradient.noise,
        "law": None if analysis.law is None else analysis.law.table,
        "sampling": None if analysis.sampling is None else analysis.sampling.table,
        "bandwidth": analysis.path_table() if analysis.paths else None,
    }
    return {name: frame for name, frame in made.items() if frame is not None}


def fact_lines(facts: LogFacts) -> list[str]:
    """The main facts about the log, in a few lines."""
    axis = "training step" if facts.time_axis == "step" else "visit index of each prompt (no training steps known)"
    gap = facts.return_gap
    returns = "no prompt comes back" if gap is None else f"prompts return after {gap:g} (median)"
    lines = [
        f"{counted(facts.n_completions, 'completion')} of {counted(facts.n_prompts, 'prompt')}; "
        f"{counted(facts.n_visits, 'visit')}, "
        f"{_span(facts.visits_per_prompt)} per prompt; groups of {_span(facts.group_size)}.",
        f"Time axis: {axis}; {counted(facts.n_steps, facts.time_axis)}; {returns}.",
        f"Mean {'accuracy' if facts.binary else 'reward'}: {facts.reward_start:.3f} over the first tenth of the "
        f"run, in whole steps, {facts.reward_end:.3f} over the last.",
    ]
    if facts.dead_groups is not None:
        alike = "all right or all wrong" if facts.binary else "with all rewards alike"
        lines.append(
            f"Dead groups ({alike}; without a history they give no gradient): {100 * facts.dead_groups:.0f} % of the "
            "groups of two completions or more."
        )
    return lines


def unit_line(analysis: Analysis) -> str:
    """A line that explains the numbers of the main table."""
    what = "Differences of MSE" if analysis.risk is None else "MSE and differences"
    return f"{what} are in units of {analysis.unit.name}. Standard errors are over prompts."


def comparison(analysis: Analysis) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of the main table: the MSE of each method, or only differences if no more is known."""
    unit = analysis.unit
    row: Any
    difference: dict[str, tuple[str, str, str]] = {}
    for row in analysis.differences[analysis.differences["reference"] == DEFAULT_METHOD].itertuples():
        gap = unit.number(row.difference, "+.2f"), unit.number(row.se), unit.interval(row.ci_low, row.ci_high)
        difference[str(row.method)] = gap
    if DEFAULT_METHOD in difference or analysis.risk is not None:
        difference[DEFAULT_METHOD] = ("reference", "", "")
    if analysis.risk is None:
        return DIFFERENCE_HEADER, [(method, *gap) for method, gap in difference.items()]
    rows: list[tuple[str, ...]] = []
    for row in analysis.risk.itertuples():
        gap_to_default, _, gap_interval = difference[str(row.method)]
        level = unit.number(row.mse), unit.number(row.se), unit.interval(row.ci_low, row.ci_high)
        rows.append((str(row.method), *level, PLAIN.number(row.vs_grpo, ".3f"), gap_to_default, gap_interval))
    return RISK_HEADER, rows


def selection_document(selection: BandwidthSelection, kernel: str) -> Document:
    """The document of `kaestat bandwidth`: the bandwidth, and the selector's risk along the bandwidths."""
    title, unit = f"Risk of selector {selection.selector}, {kernel} kernel", Unit.of(selection.path["risk"])
    rows = [
        (f"{row['bandwidth']:.2f}", *(unit.number(row[name]) for name in ("risk", "se", "difference_se")))
        for row in selection.path.to_dict("records")
    ]
    caption = f"Bandwidths are in {selection.time_axis}s, the rest in units of {unit.name}."
    tables = [Table(title, PATH_HEADER, rows, caption)] if rows else []
    return Document(title, [selection_line(selection, kernel)], tables=tables)


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


def _span(ends: tuple[int, int]) -> str:
    low, high = ends
    return f"{low}" if low == high else f"{low} to {high}"
