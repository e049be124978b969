"""Coverage and length of confidence intervals for a value: study ``interval_coverage``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from kaestat.report.plots import STYLE
from paper_figures.shared.charts import BLACK, BLUE, GREEN, ORANGE, PURPLE, VERMILION, Mark, error_bars, key, line_key
from paper_figures.shared.finding import FAILS, HOLDS, OPEN, Finding, below, critical
from paper_figures.shared.tidy import span, with_error
from simulations.studies.interval_coverage import LEVEL, conclude

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "chernoff": "Chernoff (default)",
    "score": "Score",
    "normal": "Normal (naive)",
    "robust": "Robust bias-corrected",
    "honest": "Honest (bias-aware)",
    "bernstein": "Empirical Bernstein",
}
MARKS = {
    "chernoff": Mark(BLACK, "o"),
    "score": Mark(PURPLE, "v"),
    "normal": Mark(VERMILION, "s"),
    "robust": Mark(ORANGE, "^"),
    "honest": Mark(BLUE, "o"),
    "bernstein": Mark(GREEN, "D"),
}
PATHS = {"worst_case": "Worst-case drift", "random_walk": "Random walk", "static": "Static"}
SLACK = 0.01  # coverage of 0/1 rewards jumps by about this much around the level
CAPTION = (
    f"Coverage of {100 * LEVEL:.0f} % intervals for a value (Monte Carlo standard error), and their mean length; "
    "bandwidths are multiples of the best one for the worst-case drift, of which honest and Bernstein intervals know."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every interval.

    Parameters
    ----------
    summary : DataFrame
        Of the study ``interval_coverage``.

    Returns
    -------
    DataFrame
        ``path, group_size, bandwidth, method, coverage, coverage_mcse, length, length_mcse``.
    """
    return conclude(summary)


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting, coverage and length of each kind of interval."""
    rows = []
    for (path, size, bandwidth), part in table(summary).groupby(["path", "group_size", "bandwidth"], sort=False):
        cells = part.set_index("method")
        coverage = [with_error(*cells.loc[name, ["coverage", "coverage_mcse"]]) for name in NAMES]
        length = [f"{cells.loc[name, 'length']:.3f}" for name in NAMES]
        rows.append((f"{PATHS[path]}, G = {size}, bandwidth × {bandwidth:g}", *coverage, *length))
    heads = [f"Coverage, {name}" for name in NAMES] + [f"Length, {name}" for name in NAMES]
    return pd.DataFrame(rows, columns=["Setting", *heads])


def findings(summary: pd.DataFrame) -> list[Finding]:
    """Honest coverage at worst-case drift, the naive interval's failure, and the price."""
    frame = table(summary)
    worst = frame[frame["path"] == "worst_case"]
    honest, naive, safe = (worst[worst["method"] == name] for name in ("honest", "normal", "bernstein"))
    at_best = naive[naive["bandwidth"] == 1]
    return [
        Finding(
            f"At worst-case drift honest intervals cover {100 * LEVEL:.0f} %, to Monte Carlo error, at every bandwidth",
            at_least(honest, LEVEL),
            f"{span(100 * honest['coverage'], '.1f')} %, "
            f"standard error at most {100 * honest['coverage_mcse'].max():.1f} points",
        ),
        Finding(
            f"Naive intervals fall short of {100 * LEVEL:.0f} % at worst-case drift and the best bandwidth for it",
            below(at_best["coverage"], at_best["coverage_mcse"], LEVEL),
            f"{span(100 * at_best['coverage'], '.1f')} %; at twice that bandwidth "
            f"{span(100 * naive[naive['bandwidth'] == 2]['coverage'], '.1f')} %",
        ),
        Finding(
            "Empirical Bernstein intervals cover everywhere",
            at_least(safe, LEVEL),
            f"at least {100 * safe['coverage'].min():.1f} %, at {_relative(safe, honest)} times the honest length",
        ),
        Finding(
            "Honest intervals are shorter than robust bias-corrected ones at worst-case drift",
            below(*_longer(honest, worst[worst["method"] == "robust"])),
            f"{_relative(honest, worst[worst['method'] == 'robust'])} times their length",
        ),
    ]


def figure(summary: pd.DataFrame) -> Figure:
    """Coverage above, length below; a column for each path."""
    import matplotlib
    from matplotlib.figure import Figure

    frame = table(summary)
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(10.5, 6.0), layout="constrained")
        panels = drawing.subplots(2, len(PATHS), sharex=True, sharey="row")
        for (top, bottom), (path, name) in zip(panels.T, PATHS.items(), strict=True):
            part = frame[frame["path"] == path]
            top.axhline(LEVEL, color=BLACK, linewidth=1.0)
            _draw(top, part, "coverage")
            _draw(bottom, part, "length")
            bottom.set_yscale("log")
            top.set_title(name, loc="left", fontsize=10, fontweight="bold")
            bottom.set_xlabel("Bandwidth / best for the worst case")
        panels[0, 0].set_ylabel("Coverage")
        panels[1, 0].set_ylabel("Mean length (log scale)")
        bottom.set_yticks([0.1, 0.2, 0.5], ["0.1", "0.2", "0.5"], minor=False)
        bottom.set_yticks([], minor=True)
        keys = [key(MARKS[method], label) for method, label in NAMES.items()]
        keys += [key(Mark(BLACK, "o"), "G = 8"), key(Mark(BLACK, "o", filled=False), "G = 1")]
        keys.append(line_key(f"{100 * LEVEL:.0f} %", color=BLACK))
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False, columnspacing=1.2)
    return drawing


def at_least(rows: pd.DataFrame, level: float) -> str:
    """Whether coverage is at least the level: refuted if clearly below, less the slack of discrete rewards."""
    margin = critical(len(rows)) * rows["coverage_mcse"]
    if (rows["coverage"] + margin < level - SLACK).any():
        return FAILS
    return HOLDS if (rows["coverage"] + margin >= level).all() else OPEN


def _longer(rows: pd.DataFrame, others: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    key = ["path", "group_size", "bandwidth"]
    ours, theirs = rows.set_index(key), others.set_index(key)
    return ours["length"] - theirs["length"], (ours["length_mcse"] ** 2 + theirs["length_mcse"] ** 2) ** 0.5


def _relative(rows: pd.DataFrame, others: pd.DataFrame) -> str:
    key = ["path", "group_size", "bandwidth"]
    return span(rows.set_index(key)["length"] / others.set_index(key)["length"])


def _draw(axes: Axes, part: pd.DataFrame, measure: str) -> None:
    widths = sorted(part["bandwidth"].unique())
    place = {width: position for position, width in enumerate(widths)}
    for position, (method, mark) in enumerate(MARKS.items()):
        for size, shift in ((1, -0.04), (8, 0.04)):
            rows = part[(part["method"] == method) & (part["group_size"] == size)]
            x = rows["bandwidth"].map(place) + 0.12 * (position - 2.5) + shift
            error_bars(axes, x, rows[measure], rows[f"{measure}_mcse"], Mark(mark.color, mark.marker, filled=size == 8))
    axes.set_xticks(range(len(widths)), [f"{width:g}" for width in widths])
    axes.grid(axis="y", color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
