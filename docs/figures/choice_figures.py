"""The figures of "Choose a baseline", drawn from the tables beside this file in the colours of the pages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from kaestat.report.plots import STYLE, plain_ticks, render

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent
COLORS = {"light": ("#1f1f1f", "#e4e4e4"), "dark": ("#d8dae0", "#3c3f4b")}  # of text and of the grid
FULL = 30.0  # the ratio of full colour
MAPS = {"default": "Bandwidth 10 (the paper's)", "best": "Best bandwidth"}

# Okabe and Ito's palette, told apart with any colour vision; markers and line styles differ too.
SERIES = {
    "reinforce++": ("REINFORCE++", "grey", "v", (0, (1, 1.5))),
    "rloo": ("GRPO", "#D55E00", "s", (0, (5, 2))),
    "james_stein": ("James-Stein", "#E69F00", "P", (0, (5, 2))),
    "spo": ("SPO", "#CC79A7", "X", "-"),
    "kalman": ("Kalman filter", "#009E73", "^", "-"),
    "kae": ("KAE", "#0072B2", "o", "-"),
    "kae_eb": ("KAE-EB", "#56B4E9", "D", "-"),
}
AXES = {
    "group_size": "Completions per prompt and step, G",
    "past": "Past visits of the prompt",
    "drift": "Change of the logit per visit (sd)",
}


def curves(faint: str) -> Figure:
    """Value MSE against group size, number of past visits, and drift; one panel each."""
    figure = _figure()
    frame = pd.read_csv(FOLDER / "choice_curves.csv")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (name, label) in zip(panels, AXES.items(), strict=True):
        part = frame[frame["axis"] == name]
        levels = sorted(part["at"].unique())
        for method, (text, color, marker, dashes) in SERIES.items():
            rows = part[part["method"] == method]
            axes.errorbar(
                [levels.index(at) for at in rows["at"]],  # in order: sizes double, and 0 has no logarithm
                1e3 * rows["mse"],
                1.96e3 * rows["se"],
                color=color,
                marker=marker,
                linestyle=dashes,
                markersize=4.5,
                linewidth=1.6,
                elinewidth=1,
                label=text,
            )
        axes.set_xticks(range(len(levels)), [f"{at:g}" for at in levels])
        axes.set_xlabel(label)
        axes.set_yscale("log")
        axes.grid(axis="y", color=faint, linewidth=0.7)
        axes.set_axisbelow(True)
    plain_ticks(panels[0].yaxis, (1, 3))
    panels[0].set_ylabel("Value MSE (× 0.001, log scale)")
    handles, labels = panels[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def ratio_map(faint: str) -> Figure:
    """KAE's value MSE relative to GRPO's by group size and drift, at the default and at the best bandwidth."""
    from matplotlib.colors import LogNorm

    figure = _figure()
    frame = pd.read_csv(FOLDER / "choice_map.csv")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (column, title) in zip(panels, MAPS.items(), strict=True):
        cells = frame.pivot_table(index="drift", columns="group_size", values=column)
        axes.pcolormesh(cells.clip(1 / FULL, FULL), norm=LogNorm(1 / FULL, FULL), cmap="RdBu_r", edgecolors=faint)
        for row, drift in enumerate(cells.index):
            for place, size in enumerate(cells.columns):
                ratio = cells.loc[drift, size]
                color = "white" if abs(math.log(ratio)) > 0.6 * math.log(FULL) else "#1f1f1f"
                axes.text(place + 0.5, row + 0.5, short(ratio), ha="center", va="center", color=color, fontsize=9)
        axes.set_xticks([place + 0.5 for place in range(cells.shape[1])], [f"{size:g}" for size in cells.columns])
        axes.set_yticks([row + 0.5 for row in range(cells.shape[0])], [f"{drift:g}" for drift in cells.index])
        axes.set_xlabel(AXES["group_size"])
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    panels[0].set_ylabel(AXES["drift"])
    return figure


FIGURES = {"choice_curves": curves, "choice_map": ratio_map}


def drawn(name: str, scheme: str) -> bytes:
    """One of ``FIGURES`` as SVG, in the colours of a scheme of the pages ("light" or "dark")."""
    return in_scheme(FIGURES[name], scheme)


def in_scheme(figure: Callable[[str], Figure], scheme: str) -> bytes:
    """What ``figure`` makes of the colour of a grid, as SVG in the colours of a scheme."""
    import matplotlib

    ink, faint = COLORS[scheme]
    parts = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    empty = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    with matplotlib.rc_context(STYLE | dict.fromkeys(parts, ink) | dict.fromkeys(empty, "none")):
        return render(figure(faint), "svg")


def _figure() -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(10.4, 4.4), layout="constrained")


def short(ratio: float) -> str:
    """A ratio in three characters or four."""
    return f"{ratio:.2f}" if ratio < 1.95 else f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:.0f}"
