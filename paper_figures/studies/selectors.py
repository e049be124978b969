"""Bandwidth selectors against the best fixed bandwidth: study ``bandwidth_selectors``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from paper_figures.shared.charts import BLACK, BLUE, GREEN, Mark, dot_plot, key, line_key, plain_log, styled
from paper_figures.shared.finding import Finding, below
from paper_figures.shared.tidy import number, span, with_error
from simulations.studies.bandwidth_selectors import conclude

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PATHS = {"static": "Static", "random_walk": "Random walk", "linear": "Linear in the logit"}
MARKS = {1: Mark(GREEN, "D", filled=False), 8: Mark(BLUE, "o")}
CAPTION = (
    "Value MSE of KAE with each selector, relative to the best fixed bandwidth for the truth (Monte Carlo standard "
    "error), and the mean bandwidth in steps that it chose. Rules that look at no rewards: fixed at 10 steps, a "
    "fraction of the elapsed steps, and N^(-1/3) of them."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every path, group size and selector.

    summary: Of the study ``bandwidth_selectors``.
    Returns: ``path, group_size, method, regret_ratio, regret_ratio_mcse, bandwidth, bandwidth_mcse, oracle_bandwidth``;
        an infinite oracle bandwidth is the mean of the whole past.
    """
    return conclude(summary).rename(columns={"mcse": "regret_ratio_mcse"})


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each selector, a column for each path and group size: regret ratio, then bandwidth."""
    cells = table(summary).set_index(["method", "path", "group_size"])
    rows = []
    for method in _order(summary):
        text = [
            f"{with_error(*cells.loc[(method, path, size), ['regret_ratio', 'regret_ratio_mcse']])}; "
            f"{cells.loc[(method, path, size), 'bandwidth']:.1f}"
            for path in PATHS
            for size in MARKS
        ]
        rows.append((method, *text))
    any_method = rows[0][0]
    best = [number(cells.loc[(any_method, path, size), "oracle_bandwidth"]) for path in PATHS for size in MARKS]
    rows.append(("best fixed bandwidth", *(f"1; {bandwidth}" for bandwidth in best)))
    heads = [f"{name}, G = {size}" for name in PATHS.values() for size in MARKS]
    return pd.DataFrame(rows, columns=["Selector", *heads])


def findings(summary: pd.DataFrame) -> list[Finding]:
    """Data-driven selectors against fixed rules."""
    frame = table(summary)
    best = _order(summary)[0]
    chosen = frame[frame["method"] == best]
    moving = chosen[chosen["path"] != "static"]
    fixed = frame[frame["method"] == "fixed"]
    forward = frame[frame["method"] == "forward_cv"]
    key = ["path", "group_size"]
    pair = forward.set_index(key), fixed.set_index(key)
    error = (pair[0]["regret_ratio_mcse"] ** 2 + pair[1]["regret_ratio_mcse"] ** 2) ** 0.5  # unpaired, so too large
    return [
        Finding(
            "Forward cross-validation has a smaller value MSE than the fixed bandwidth of 10 steps on every path",
            below(pair[0]["regret_ratio"] - pair[1]["regret_ratio"], error),
            f"{span(forward['regret_ratio'])} against {span(fixed['regret_ratio'])} times the best fixed bandwidth's",
        ),
        Finding(
            f"The best selector ({best}) is within 25 % of the best fixed bandwidth where values move",
            below(moving["regret_ratio"], moving["regret_ratio_mcse"], 1.25),
            f"{span(moving['regret_ratio'])} times its MSE",
        ),
    ]


def figure(summary: pd.DataFrame) -> Figure:
    """One panel per path: each selector's MSE relative to the best fixed bandwidth's."""
    frame, order = table(summary), _order(summary)
    with styled(10.5, 4.2) as drawing:
        panels = drawing.subplots(1, len(PATHS), sharex=True, sharey=True)
        for axes, (path, name) in zip(panels, PATHS.items(), strict=True):
            axes.axvline(1.0, color=BLACK, linewidth=1.0)
            part = frame[frame["path"] == path]
            dot_plot(axes, part, row="method", rows=order, series="group_size", marks=MARKS, x="regret_ratio")
            plain_log(axes.xaxis)
            axes.set_title(name, loc="left", fontsize=10, fontweight="bold")
        panels[1].set_xlabel("Value MSE relative to that of the best fixed bandwidth (log scale)")
        keys = [key(mark, f"G = {size}") for size, mark in MARKS.items()]
        keys.append(line_key("best fixed bandwidth", color=BLACK))
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return drawing


def _order(summary: pd.DataFrame) -> list[str]:
    """Selectors from the best on, by the geometric mean of their regret ratios."""
    ratio = table(summary).groupby("method")["regret_ratio"].apply(lambda r: r.prod() ** (1 / len(r)))
    return list(ratio.sort_values(kind="stable").index)
