"""How far each method is from the best that is possible, over speeds and changes of speed: study ``efficiency``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kaestat.report.plots import STYLE
from paper_figures.shared.charts import BLACK, BLUE, GREEN, LABELS, ORANGE, Mark, dot_plot, key, line_key, plain_log
from paper_figures.shared.finding import Finding, above, below
from paper_figures.shared.tidy import by_measure, span, with_error
from simulations.studies.efficiency import DEFAULT, LIMIT, SECOND, STEADY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = ["visits", "path", "every", "group_size"]
FIXED, GROUP = ("kae:bandwidth=10", "kae_eb:bandwidth=20"), ("rloo", "james_stein")
MARKS = {1: Mark(GREEN, "D", filled=False), 4: Mark(BLUE, "o"), 16: Mark(ORANGE, "s")}
PANELS = {
    "Walk, 0.03 logits a visit": (30, "walk 0.03", 1),
    "Walk, 0.13": (30, "walk 0.13", 1),
    "Walk, 0.5": (30, "walk 0.5", 1),
    "Walk, 0.13, five visits": (5, "walk 0.13", 1),
    "Fast, then slow": (30, "fast, then slow", 1),
    "Slow, then fast": (30, "slow, then fast", 1),
    "One jump": (30, "jump", 1),
    "Walk, 0.13, every 60 steps": (30, "walk 0.13", 60),
}
CAPTIONS = {
    "efficiency": "Value MSE relative to the best that any method achieves in the same setting, and to the Bayes "
    "filter that knows how values move (Monte Carlo standard error): the worst setting of each method, and the mean "
    "over all. The best bandwidths are those for the truth, which nobody knows.",
    "efficiency_settings": "Value MSE relative to the best achieved, in every setting (Monte Carlo standard error).",
}


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every setting and method.

    summary: Of the study ``efficiency``.
    Returns: ``visits, path, every, group_size, method, mse, mse_mcse, ratio_to_known, ratio_to_known_mcse,
        ratio_to_best, ratio_to_best_mcse, n``; the filter that knows how values move has no ratios.
    """
    return by_measure(summary, [*CELL, "method"], ("mse", "ratio_to_known", "ratio_to_best"))


def worst(summary: pd.DataFrame) -> pd.DataFrame:
    """Largest and mean ratios of each method, the best method first.

    summary: Of the study ``efficiency``.
    Returns: ``method, settings``, the setting of the largest ratio to the best (``visits, path, every, group_size``),
        ``max_ratio_to_best, mean_ratio_to_best, max_ratio_to_known, mean_ratio_to_known``, each with its ``_mcse``;
        that of a largest ratio is its setting's.
    """
    frame = table(summary)
    rows = []
    for method, part in frame[frame["ratio_to_best"].notna()].groupby("method"):
        row: dict[str, object] = {"method": method, "settings": len(part)}
        row |= part.loc[part["ratio_to_best"].idxmax(), CELL].to_dict()
        for ratio in ("ratio_to_best", "ratio_to_known"):
            largest, error = part.loc[part[ratio].idxmax()], part[f"{ratio}_mcse"]
            row |= {f"max_{ratio}": largest[ratio], f"max_{ratio}_mcse": largest[f"{ratio}_mcse"]}
            row |= {f"mean_{ratio}": part[ratio].mean(), f"mean_{ratio}_mcse": np.sqrt((error**2).sum()) / len(part)}
        rows.append(row)
    return pd.DataFrame(rows).sort_values("max_ratio_to_best", ignore_index=True)


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each method: its worst setting and its mean."""
    rows = []
    for _, row in worst(summary).iterrows():
        text = [
            with_error(row[name], row[f"{name}_mcse"])
            for name in ("max_ratio_to_best", "mean_ratio_to_best", "max_ratio_to_known", "mean_ratio_to_known")
        ]
        rows.append((LABELS[row["method"]], text[0], setting(row), *text[1:]))
    heads = ["Method", "Worst to best", "Where", "Mean to best", "Worst to known", "Mean to known"]
    return pd.DataFrame(rows, columns=heads)


def shown_settings(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting, a column for each method: MSE relative to the best."""
    frame = table(summary).set_index([*CELL, "method"])[["ratio_to_best", "ratio_to_best_mcse"]]
    methods = worst(summary)["method"]
    rows = []
    for cell in frame.index.droplevel("method").unique():
        text = [with_error(*frame.loc[(*cell, name)]) if (*cell, name) in frame.index else "" for name in methods]
        rows.append((setting(dict(zip(CELL, cell, strict=True))), *text))
    return pd.DataFrame(rows, columns=["Setting", *(LABELS[name] for name in methods)])


def setting(row: pd.Series | dict[str, object]) -> str:
    """ "jump, 30 visits, G = 16"."""
    rare = f" every {row['every']} steps" if row["every"] != 1 else ""
    return f"{row['path']}, {row['visits']} visits{rare}, G = {row['group_size']}"


def findings(summary: pd.DataFrame) -> list[Finding]:
    """The default and the automatic bandwidth against the best achieved, and what fixed bandwidths lose."""
    frame, extremes = table(summary), worst(summary).set_index("method")
    default, automatic = (frame[frame["method"] == name] for name in (DEFAULT, SECOND))
    steady = automatic[automatic["path"].isin(STEADY)]
    rare = frame[frame["method"].isin(FIXED) & (frame["every"] > 1)]
    return [
        Finding(
            f"The recommended default ({LABELS[DEFAULT]}) is never more than {LIMIT:g} times the best achieved",
            below(default["ratio_to_best"], default["ratio_to_best_mcse"], LIMIT),
            f"{_largest(default)}; mean {_mean(extremes.loc[DEFAULT])}; {span(default['ratio_to_known'])} times the "
            "filter that knows how values move",
        ),
        Finding(
            f"{LABELS[SECOND]} is never more than {LIMIT:g} times the best achieved",
            below(automatic["ratio_to_best"], automatic["ratio_to_best_mcse"], LIMIT),
            f"{_largest(automatic)}; mean {_mean(extremes.loc[SECOND])}",
        ),
        Finding(
            f"{LABELS[SECOND]} is never more than {LIMIT:g} times the best achieved where values keep their speed",
            below(steady["ratio_to_best"], steady["ratio_to_best_mcse"], LIMIT),
            _largest(steady),
        ),
        Finding(
            "Where prompts return every twelve steps or later, fixed bandwidths of 10 and 20 steps have more than "
            "three times the best value MSE",
            above(rare["ratio_to_best"], rare["ratio_to_best_mcse"], 3.0),
            f"{span(rare['ratio_to_best'])} times",
        ),
    ]


def figure(summary: pd.DataFrame) -> Figure:
    """One panel per kind of movement: MSE of each method with a history, relative to the best."""
    import matplotlib
    from matplotlib.figure import Figure

    frame = table(summary)
    order = [name for name in worst(summary)["method"] if name not in GROUP]
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(12.5, 6.4), layout="constrained")
        panels = drawing.subplots(2, 4, sharex=True, sharey=True)
        for axes, (title, (visits, path, every)) in zip(panels.flat, PANELS.items(), strict=True):
            axes.axvline(1.0, color=BLACK, linewidth=1.0)
            axes.axvline(LIMIT, color=BLACK, linewidth=0.8, linestyle=":")
            part = frame[(frame["visits"] == visits) & (frame["path"] == path) & (frame["every"] == every)]
            dot_plot(axes, part, row="method", rows=order, series="group_size", marks=MARKS, x="ratio_to_best")
            plain_log(axes.xaxis)
            axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        for axes in panels[-1]:
            axes.set_xlabel("Value MSE / best (log scale)")
        keys = [key(mark, f"G = {size}") for size, mark in MARKS.items()]
        keys.append(line_key(f"{LIMIT:g} times", color=BLACK, linestyle=":"))
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return drawing


def _largest(rows: pd.DataFrame) -> str:
    at = rows.loc[rows["ratio_to_best"].idxmax()]
    return f"at most {with_error(at['ratio_to_best'], at['ratio_to_best_mcse'])} ({setting(at)})"


def _mean(row: pd.Series) -> str:
    return with_error(row["mean_ratio_to_best"], row["mean_ratio_to_best_mcse"])
