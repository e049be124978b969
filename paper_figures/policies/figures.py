"""Learning curves against completions, and how many of them each design needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from llm_experiments.study.contrasts import POOLED, best_groups
from llm_experiments.study.endpoints import on_grid
from paper_figures.policies.results import read_study
from paper_figures.shared.charts import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, line_key, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = (VERMILION, GREEN, PURPLE, BLUE, ORANGE, SKY, GREY, BLACK)
POINTS = 51
DRAWN = 6  # designs with a curve; more would hide each other


def figure(folder: Path) -> Figure:
    """Left, accuracy at matched temperature against completions; right, completions to the best group design's end.

    Bands are one standard error over runs to either side, base models' levels taken out; bars are Student's 95 %
    intervals over base models. All designs have a bar, and the first of them a curve.

    folder: Of a study whose tables have been built; a FileNotFoundError if they have not.
    """
    config, curves, names = read_study(folder)
    speed, budget = pd.read_csv(folder / "speed.csv"), config.budget
    groups = best_groups(pd.read_csv(folder / "rates.csv"), config.designs)
    drawn = list(dict.fromkeys([config.recommended, *config.rivals, *groups.values(), *names]))[:DRAWN]
    pooled = speed[(speed["base"].astype(str) == POOLED) & (speed["fraction"] == 1)].set_index("design")
    with styled(10.5, max(4.2, 0.28 * len(pooled) + 1.6)) as drawing:
        left, right = drawing.subplots(1, 2, width_ratios=(1.1, 1))
        color = dict(zip(drawn, COLORS, strict=False))
        for design in drawn:
            _curve(left, curves[curves["design"] == design], budget, color[design])
        left.set(xlabel="Completions generated (thousands)", ylabel="Test accuracy, matched temperature")
        keys = [line_key(names[design], color=color[design]) for design in drawn]
        drawing.legend(handles=keys, frameon=False, loc="outside lower center", ncols=3)
        _bars(right, pooled, names, color)
    return drawing


def _curve(axes: Axes, curves: pd.DataFrame, budget: int, color: str) -> None:
    grid = np.linspace(0, budget, POINTS)
    stacks = [on_grid(stack, "matched", grid) for _, stack in curves.groupby("base")]
    mean = np.mean([stack.mean(0) for stack in stacks], axis=0)
    within = np.concatenate([stack - stack.mean(0) for stack in stacks])
    se = within.std(0, ddof=len(stacks)) / np.sqrt(len(within))
    axes.plot(grid / 1000, mean, color=color)
    axes.fill_between(grid / 1000, mean - se, mean + se, color=color, alpha=0.2, linewidth=0)


def _bars(axes: Axes, pooled: pd.DataFrame, names: Mapping[str, str], color: Mapping[str, str]) -> None:
    """One row a design, the quickest on top; an arrow where the accuracy may not be reached."""
    ordered = pooled.sort_values(["ratio", "low"])
    edge = 1.12
    for place, (design, row) in enumerate(ordered.iterrows()):
        shade = color.get(str(design), GREY)
        low, ratio, high = (min(row[name], edge) for name in ("low", "ratio", "high"))
        axes.plot([low, high], [place, place], color=shade, linewidth=1.5)
        if np.isinf(row["high"]):
            axes.plot(edge, place, color=shade, marker=">", markersize=5, markerfacecolor="white")
        axes.plot(ratio, place, color=shade, marker=">" if np.isinf(row["ratio"]) else "o", markersize=5)
    axes.axvline(1.0, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(ordered)), [names[str(design)] for design in ordered.index])
    axes.invert_yaxis()
    axes.set(xlim=(0, edge + 0.05), xlabel="Completions to the best group design's end")
