"""Coverage and length of intervals from few visits and for rare successes: study ``interval_few_visits``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from kaestat.report.plots import STYLE
from paper_figures.shared.charts import BLACK, PURPLE, Mark, error_bars, key, line_key
from paper_figures.shared.finding import FAILS, HOLDS, OPEN, Finding, critical
from paper_figures.shared.tidy import span
from simulations.studies.interval_few_visits import KEYS, LEVEL, conclude

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"chernoff": "Chernoff (default)", "score": "Score"}
MARKS = {"chernoff": Mark(BLACK, "o"), "score": Mark(PURPLE, "v")}
SLACK = 0.01  # coverage of 0/1 rewards jumps by about this much around the level
MANY = 30  # effective completions from which score intervals are meant to be used
CAPTION = (
    f"Least coverage of {100 * LEVEL:.0f} % intervals for a value over bandwidths of 5, 10 and 100 steps, constant and "
    "falling, and their mean length."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every interval.

    summary: Of the study ``interval_few_visits``.
    Returns: ``path, value, group_size, visits, bandwidth, method, coverage, coverage_mcse, length, length_mcse,
        effective_size``.
    """
    return conclude(summary)


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each value, group size and number of visits."""
    rows = []
    for (value, size, visits), part in table(summary).groupby(["value", "group_size", "visits"], sort=False):
        by_method = part.groupby("method")
        coverage, length = by_method["coverage"].min(), by_method["length"].mean()
        cells = [f"{coverage[name]:.3f}" for name in NAMES] + [f"{length[name]:.3f}" for name in NAMES]
        rows.append((f"Value {value:g}, G = {size}, {visits} visits", *cells))
    heads = [f"Coverage, {name}" for name in NAMES.values()] + [f"Length, {name}" for name in NAMES.values()]
    return pd.DataFrame(rows, columns=["Setting", *heads])


def findings(summary: pd.DataFrame) -> list[Finding]:
    """The default's coverage, and the score interval's with its price."""
    frame = table(summary)
    default, score = (frame[frame["method"] == name].set_index(KEYS) for name in NAMES)
    many = score["effective_size"] >= MANY
    return [
        Finding(
            f"The default, Chernoff, covers {100 * LEVEL:.0f} % in every setting",
            at_least(default, LEVEL),
            f"at least {100 * default['coverage'].min():.1f} %",
        ),
        Finding(
            f"Score intervals come within 3 points of {100 * LEVEL:.0f} % from {MANY} effective completions on",
            at_least(score[many], LEVEL - 0.03),
            f"{span(100 * score['coverage'][many], '.1f')} %, at "
            f"{span(score['length'][many] / default['length'][many])} times the default's length; with fewer, at least "
            f"{100 * score['coverage'].min():.1f} %",
        ),
    ]


def at_least(rows: pd.DataFrame, level: float) -> str:
    """Whether coverage is at least the level: refuted if clearly below, less the slack of discrete rewards."""
    margin = critical(len(rows)) * rows["coverage_mcse"]
    if (rows["coverage"] + margin < level - SLACK).any():
        return FAILS
    return HOLDS if (rows["coverage"] + margin >= level).all() else OPEN


def figure(summary: pd.DataFrame) -> Figure:
    """Coverage against the effective number of completions; a panel for each value."""
    import matplotlib
    from matplotlib.figure import Figure

    frame = table(summary)
    size = frame[frame["method"] == "chernoff"].set_index(KEYS)["effective_size"]
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(10.5, 3.8), layout="constrained")
        values = sorted(frame["value"].unique())
        panels = drawing.subplots(1, len(values), sharey=True)
        for panel, value in zip(panels, values, strict=True):
            panel.axhline(LEVEL, color=BLACK, linewidth=1.0)
            for name, mark in MARKS.items():
                part = frame[(frame["method"] == name) & (frame["value"] == value)]
                at = size.loc[pd.MultiIndex.from_frame(part[KEYS])].to_numpy()
                error_bars(panel, at, part["coverage"], part["coverage_mcse"], mark)
            panel.set_xscale("log")
            panel.set_xticks([3, 10, 30, 100], ["3", "10", "30", "100"], minor=False)
            panel.set_xticks([], minor=True)
            panel.set_title(f"Value {value:g}", loc="left", fontsize=10, fontweight="bold")
            panel.set_xlabel("Effective completions")
            panel.grid(axis="y", color="0.92", linewidth=0.6)
            panel.set_axisbelow(True)
        panels[0].set_ylabel("Coverage")
        keys = [key(MARKS[name], label) for name, label in NAMES.items()]
        keys.append(line_key(f"{100 * LEVEL:.0f} %", color=BLACK))
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False, columnspacing=1.2)
    return drawing
