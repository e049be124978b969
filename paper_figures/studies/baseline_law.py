"""The law of the baseline against what bandits did: two figures from the tables in ``results/baseline_law``.

They show where each baseline leaves the least noise, with every cell in it, and predicted against measured completions.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kaestat.core.result_tables import table_file
from kaestat.report.plots import STYLE
from kaestat.theory.baseline_law import best_baseline, none_beats_value
from paper_figures.shared.charts import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Mark,
    key,
    line_key,
    plain_log,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What can be subtracted without a weight: its colour in the map, and the design that a cell measures it by.
CHOICES = {"none": PURPLE, "none_signed": ORANGE, "value": BLUE}
CHOICE_NAMES = {"none": "nothing, rewards 0 and 1", "none_signed": "nothing, rewards ±1", "value": "the value"}
OPTIMISER_MARKERS = {"sgd": "s", "adamw": "o", "muon": "^"}
OPTIMISER_NAMES = {"sgd": "SGD", "adamw": "AdamW", "muon": "Muon"}
MARKS = {
    "none": Mark(PURPLE, "v"),
    "none_signed": Mark(PURPLE, "v", filled=False),
    "batch_mean": Mark(GREY, "^"),
    "weighted_batch_mean": Mark(GREY, "^", filled=False),
    "weighted_constant": Mark(ORANGE, "D", filled=False),
    "history": Mark(BLUE, "o"),
    "weighted_history": Mark(GREEN, "o"),
    "value": Mark(BLACK, "x"),
    "best": Mark(BLACK, "+"),
    "grpo": Mark(VERMILION, "s"),
    "rloo": Mark(SKY, "s", filled=False),
}
MARK_NAMES = {
    "none": "none, 0/1",
    "none_signed": "none, ±1",
    "batch_mean": "batch mean",
    "weighted_batch_mean": "batch mean, weighted",
    "weighted_constant": "one constant, weighted",
    "history": "history",
    "weighted_history": "history, weighted",
    "value": "true value",
    "best": "true best baseline",
    "grpo": "GRPO-2 to 16",
    "rloo": "RLOO-2, 4",
}
SMALLEST, LARGEST = 0.2, 6.0  # completions that are drawn
FACTOR = 1.3
LEAST_RATIO, MOST_RATIO = 0.3, 20.0


def read(folder: str | os.PathLike[str]) -> dict[str, pd.DataFrame]:
    """The tables ``inputs``, ``measured`` and ``contrasts``."""
    names = ("inputs", "measured", "contrasts")
    return {name: pd.read_csv(table_file(Path(folder) / f"{name}.csv")) for name in names}


def measured_models(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """Where policies stand that `llm_experiments.law` has measured, in Adam's units: ``value, ratio, low, high``.

    The ratio is ``rho`` of the law's command, with the ends of its interval.
    """
    found = pd.read_csv(Path(folder) / "summary.csv").query("metric == 'adam'").set_index(["cell", "step", "quantity"])
    value, ratio = (found.xs(quantity, level="quantity") for quantity in ("p", "rho"))
    return ratio[["low", "high"]].assign(value=value["value"], ratio=ratio["value"]).reset_index()


def regions(tables: dict[str, pd.DataFrame], models: pd.DataFrame | None = None) -> Figure:
    """Where each choice of an unweighted baseline leaves the least noise in one prompt, and every cell in it.

    The noise of b is ``m(b*) + E[W] (b - b*)^2``, so the choice nearest to b* wins. A cell stands at its mean value and
    its weight ratio; its colour is the choice that had the highest mean accuracy there. ``models`` are those of
    `measured_models`, for which nothing has been trained.
    """
    import matplotlib
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    value, ratio = np.linspace(0.005, 0.995, 400), np.geomspace(LEAST_RATIO, MOST_RATIO, 400)
    best = best_baseline(value[None], ratio[:, None])
    distance = np.stack([np.abs(best), np.abs(best - 0.5), np.abs(best - value)])
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(7.2, 4.8), layout="constrained")
        axes = drawing.subplots()
        colors = ListedColormap(list(CHOICES.values()))
        axes.pcolormesh(value, ratio, distance.argmin(axis=0), cmap=colors, alpha=0.22, rasterized=True)
        line = none_beats_value(value)
        axes.plot(value[line < MOST_RATIO], line[line < MOST_RATIO], color=BLACK, linewidth=1.0)
        for row in _places(tables).itertuples():
            face = CHOICES[row.winner] if row.clear else "white"
            edge = CHOICES[row.winner]
            marker = OPTIMISER_MARKERS[row.optimiser]
            axes.plot(row.value, row.ratio, marker=marker, color=edge, markerfacecolor=face, linestyle="", markersize=7)
        for row in [] if models is None else models.itertuples():
            axes.plot([row.value] * 2, [row.low, row.high], color=BLACK, linewidth=1.0)
            axes.plot(row.value, row.ratio, marker="x", color=BLACK, linestyle="", markersize=7)
        plain_log(axes.yaxis, subs=(1, 2, 3, 5))
        axes.set(
            xlim=(0, 1),
            ylim=(LEAST_RATIO, MOST_RATIO),
            xlabel="Value p",
            ylabel="ρ, in the optimiser's units",
        )
        keys = [key(Mark(color, "o"), CHOICE_NAMES[name]) for name, color in CHOICES.items()]
        keys += [key(Mark(GREY, marker), OPTIMISER_NAMES[name]) for name, marker in OPTIMISER_MARKERS.items()]
        keys += [key(Mark(GREY, "o", filled=False), "not told apart"), line_key("ρ = 1 + 1/(1 − p)", color=BLACK)]
        if models is not None:
            keys.append(key(Mark(BLACK, "x"), "SmolLM2-135M"))
        drawing.legend(handles=keys, frameon=False, loc="outside lower center", ncols=4)
    return drawing


def agreement(tables: dict[str, pd.DataFrame]) -> Figure:
    """Measured against predicted completions of every design, relative to the best group design of its cell."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = tables["measured"].copy()
    parts = rows["cell"].str.rsplit("_", n=2, expand=True)
    rows["panel"] = np.where(parts[2] == "64", parts[1].map(OPTIMISER_NAMES), "B = 8 and 256")
    panels = [name for name in (*OPTIMISER_NAMES.values(), "B = 8 and 256") if (rows["panel"] == name).any()]
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(3.0 * len(panels) + 0.6, 4.3), layout="constrained")
        every = drawing.subplots(1, len(panels), sharey=True, sharex=True, squeeze=False)[0]
        for axes, name in zip(every, panels, strict=True):
            _panel(axes, rows[rows["panel"] == name])
            axes.set(title=name, xlabel="Predicted completions")
        every[0].set_ylabel("Measured completions")
        keys = [key(mark, MARK_NAMES[name]) for name, mark in MARKS.items()]
        columns = round(1.5 * len(panels))
        drawing.legend(handles=keys, frameon=False, loc="outside lower center", ncols=columns, fontsize=8.5)
    return drawing


def _panel(axes: Axes, rows: pd.DataFrame) -> None:
    ends = np.array([SMALLEST, LARGEST])
    axes.fill_between(ends, ends / FACTOR, ends * FACTOR, color="0.92", linewidth=0)
    axes.plot(ends, ends, color=GREY, linewidth=0.8)
    for row in rows.itertuples():
        kind = row.design.split("_")[0]
        mark = MARKS[kind if kind in ("grpo", "rloo") else row.design]
        found, (low, high) = row.completions, (row.completions_low, row.completions_high)
        y = min(found, LARGEST)
        axes.plot(
            [row.predicted] * 2, np.clip([low, high], SMALLEST, LARGEST), color=mark.color, linewidth=0.5, alpha=0.5
        )
        style = mark.style | {"markersize": 4}
        if not np.isfinite(found):
            style |= {"marker": "^", "markersize": 6}
        axes.plot(row.predicted, y, linestyle="", **style)
    for axis in (axes.xaxis, axes.yaxis):
        plain_log(axis, subs=(1, 2, 5))
    axes.set(xlim=tuple(ends), ylim=tuple(ends))


def _places(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Where each cell stands in the map, and which choice won there, clearly or not."""
    inputs = tables["inputs"].groupby("cell")[["value", "ratio"]].mean()
    areas = tables["measured"].pivot_table(index="cell", columns="design", values="area")[list(CHOICES)]
    contrasts = tables["contrasts"].set_index(["cell", "design", "other"])
    rows = []
    for cell, own in areas.iterrows():
        ordered = own.sort_values(ascending=False).index
        pair = contrasts.loc[(cell, ordered[0], ordered[1])]
        rows.append(
            {
                "cell": cell,
                "optimiser": str(cell).rsplit("_", 2)[1],
                "value": inputs.loc[cell, "value"],
                "ratio": inputs.loc[cell, "ratio"],
                "winner": ordered[0],
                "clear": bool(pair["difference"] > pair["half"]),
            }
        )
    return pd.DataFrame(rows)
