"""The paper's sensitivity figure: KAE's value MSE against its bandwidth, of simulated populations or of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from paper_figures.shared.charts import (
    BLUE,
    GREEN,
    GREY,
    LABELS,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    line_key,
    plain_log,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEP_COLORS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)
LEVELS = {"grpo": (0, (5, 2)), "reinforce++": (0, (1, 1.5))}


def against_bandwidth(frame: pd.DataFrame) -> Figure:
    """One panel per kernel: KAE's value MSE against its bandwidth with a band, and two levels, for each step.

    frame: ``step, method, kernel, bandwidth, mse, low, high``; kernel and bandwidth are empty for GRPO and REINFORCE++.
    """
    kernels = [kernel for kernel in frame["kernel"].dropna().unique() if kernel]
    steps = sorted(frame["step"].unique())
    colored = [(step, STEP_COLORS[position % len(STEP_COLORS)]) for position, step in enumerate(steps)]
    with styled(4.6 * len(kernels), 3.9) as drawing:
        panels = drawing.subplots(1, len(kernels), sharey=True, squeeze=False)[0]
        for axes, kernel in zip(panels, kernels, strict=True):
            for step, color in colored:
                _curve(axes, frame[frame["step"] == step], kernel, color)
            plain_log(axes.xaxis)
            axes.set_title(f"{kernel.capitalize()} kernel", fontsize=10)
            axes.set_xlabel("Bandwidth (steps, log scale)")
        narrow = frame["mse"].max() < 10 * frame["low"].min()
        plain_log(panels[0].yaxis, (1, 2, 3, 4, 6, 8) if narrow else (1, 2, 5))
        panels[0].set_ylabel("Value MSE (× 0.001, log scale)")
        keys = [line_key(f"KAE, step {step}", color=color, linewidth=2) for step, color in colored]
        keys += [line_key(LABELS[name], color=GREY, linestyle=dashes) for name, dashes in LEVELS.items()]
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return drawing


def _curve(axes: Axes, at_step: pd.DataFrame, kernel: str, color: str) -> None:
    curve = at_step[at_step["kernel"] == kernel].sort_values("bandwidth")
    low, high, mse = (1e3 * curve[name] for name in ("low", "high", "mse"))
    axes.fill_between(curve["bandwidth"], low, high, color=color, alpha=0.2, linewidth=0)
    axes.plot(curve["bandwidth"], mse, color=color, linewidth=2, marker="o", markersize=3)
    for name, dashes in LEVELS.items():
        axes.axhline(1e3 * at_step.loc[at_step["method"] == name, "mse"].item(), color=color, linestyle=dashes)
