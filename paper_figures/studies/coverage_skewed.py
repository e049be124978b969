"""Coverage and length of risk tables' intervals where few prompts carry an estimate: study ``interval_skewed``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from kaestat.report.plots import STYLE
from paper_figures.shared.charts import BLACK, BLUE, ORANGE, Mark, error_bars, key, line_key
from paper_figures.shared.finding import Finding, above, below
from paper_figures.shared.tidy import span, with_error
from simulations.studies.interval_skewed import LEVEL, conclude

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {"skewed": Mark(BLUE, "o"), "percentile": Mark(ORANGE, "s")}
NAMES = {"skewed": "Longer on the side of the tail", "percentile": "Percentiles"}
VALUES = {False: "GRPO", True: "kernel mean"}
BEYOND = (
    "value .03, 10 prompts",
    "weighted prompts, 30 prompts",
    "weighted prompts, 100 prompts",
)  # too few carry them
LEAST, LONGEST = LEVEL - 0.02, 1.3
CAPTION = (
    f"Coverage of {100 * LEVEL:.0f} % intervals of risk tables (Monte Carlo standard error), how often they lie "
    "below and above the truth, and median length as a multiple of that of percentile intervals."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every interval.

    summary: Of the study ``interval_skewed``.
    Returns: ``case, history, method, coverage, too_low, too_high, median_length``, each with its ``_mcse``.
    """
    return conclude(summary)


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each case and value."""
    rows = []
    for (case, history), part in table(summary).groupby(["case", "history"], sort=False):
        plain, ours = (part[part["method"] == name].iloc[0] for name in ("percentile", "skewed"))
        rows.append(
            (
                f"{case}, {VALUES[bool(history)]}",
                *(with_error(row["coverage"], row["coverage_mcse"]) for row in (plain, ours)),
                *(f"{row['too_low']:.3f}/{row['too_high']:.3f}" for row in (plain, ours)),
                f"{ours['median_length']:.2f}",
            )
        )
    heads = ["Coverage, percentiles", "Coverage", "Below/above, percentiles", "Below/above", "Length"]
    return pd.DataFrame(rows, columns=["Case", *heads])


def findings(summary: pd.DataFrame) -> list[Finding]:
    """Coverage and length in the cases that the mechanism is for, and the cases that it is not enough for."""
    frame = table(summary)
    ours = frame[frame["method"] == "skewed"]
    meant, beyond = ours[~ours["case"].isin(BEYOND)], ours[ours["case"].isin(BEYOND)]
    plain = frame[(frame["method"] == "percentile") & ~frame["case"].isin(BEYOND)]
    heavy = beyond[beyond["history"].astype(bool)]
    return [
        Finding(
            f"Intervals of risk tables cover {100 * LEAST:.0f} % or more where contributions of prompts are skewed",
            above(meant["coverage"], meant["coverage_mcse"], LEAST),
            f"{span(100 * meant['coverage'], '.1f')} %; percentiles {span(100 * plain['coverage'], '.1f')} %",
        ),
        Finding(
            f"They have a median length of at most {LONGEST:g} times that of percentile intervals there",
            below(meant["median_length"], meant["median_length_mcse"], LONGEST),
            f"{span(meant['median_length'])} times",
        ),
        Finding(
            "Where a few prompts of a heavy tail carry the estimate, they cover too little, and the package warns",
            below(heavy["coverage"], heavy["coverage_mcse"], LEVEL),
            f"{span(100 * heavy['coverage'], '.1f')} %",
        ),
    ]


def figure(summary: pd.DataFrame) -> Figure:
    """Coverage of each case."""
    import matplotlib
    from matplotlib.figure import Figure

    frame = table(summary)
    labels = [
        f"{case}, {VALUES[bool(history)]}"
        for case, history in frame[["case", "history"]].drop_duplicates().itertuples(index=False)
    ]
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(8.0, 4.6), layout="constrained")
        panel = drawing.subplots()
        panel.axhline(LEVEL, color=BLACK, linewidth=1.0)
        for name, mark in MARKS.items():
            part = frame[frame["method"] == name]
            error_bars(panel, range(len(part)), part["coverage"], part["coverage_mcse"], mark)
        panel.set_xticks(range(len(labels)), labels, rotation=40, ha="right", fontsize=7)
        panel.set_ylabel("Coverage")
        panel.grid(axis="y", color="0.92", linewidth=0.6)
        panel.set_axisbelow(True)
        keys = [key(MARKS[name], label) for name, label in NAMES.items()]
        keys.append(line_key(f"{100 * LEVEL:.0f} %", color=BLACK))
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return drawing
