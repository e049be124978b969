"""Figures of the diagnostics on a real language model: the sensitivity to the bandwidth, and Assumption 6."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from llm_experiments.diagnose.results import Results
from paper_figures.shared.charts import BLUE, GREEN, GREY, LABELS, ORANGE, VERMILION, line_key, plain_log, styled
from paper_figures.shared.output import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEP_COLORS = (BLUE, VERMILION, GREEN, ORANGE, "#CC79A7", "#56B4E9")
WIDE = 30.0  # from this range on a logarithmic axis shows powers of ten alone
LEVELS = {"grpo": (0, (5, 2)), "reinforce++": (0, (1, 1.5))}


def value_sensitivity(frame: pd.DataFrame) -> Figure:
    """One panel per kernel: KAE's value MSE against its bandwidth with a 95 % band, and two levels, for each step.

    frame: ``value_sensitivity`` of the results.
    """
    kernels = [kernel for kernel in frame["kernel"].unique() if kernel]
    steps = sorted(frame["step"].unique())
    with styled(4.6 * len(kernels), 3.9) as drawing:
        panels = drawing.subplots(1, len(kernels), sharey=True, squeeze=False)[0]
        for axes, kernel in zip(panels, kernels, strict=True):
            for step, color in _colored(steps):
                _curve(axes, frame[frame["step"] == step], kernel, color)
            axes.set_xscale("log")
            bandwidths = sorted(frame["bandwidth"].dropna().unique())
            axes.set_xticks(bandwidths, [f"{bandwidth:g}" for bandwidth in bandwidths], minor=False)
            axes.set_xticks([], minor=True)
            axes.set_title(f"{kernel.capitalize()} kernel", fontsize=10)
            axes.set_xlabel("Bandwidth (steps, log scale)")
        narrow = frame["mse"].max() < 10 * frame["ci_low"].min()
        plain_log(panels[0].yaxis, (1, 2, 3, 4, 6, 8) if narrow else (1, 2, 5))
        panels[0].set_ylabel("Value MSE (× 0.001, log scale)")
        keys = [line_key(f"KAE, step {step}", color=color, linewidth=2) for step, color in _colored(steps)]
        keys += [line_key(LABELS[name], color=GREY, linestyle=dashes) for name, dashes in LEVELS.items()]
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return drawing


def assumption6(norms: pd.DataFrame) -> Figure:
    """A column per step: mean squared score norm W of wrong against right completions, best baseline against value.

    norms: ``score_norms`` of the results. Prompts all right or all wrong have no place in the upper row.
    """
    steps = sorted(norms["step"].unique())
    with styled(0.6 + 2.9 * len(steps), 6.2) as drawing:
        panels = drawing.subplots(2, len(steps), sharex="row", sharey="row", squeeze=False)
        style = {"linestyle": "", "marker": "o", "markersize": 4, "color": BLUE, "alpha": 0.55, "markeredgewidth": 0}
        for column, step in enumerate(steps):
            part = norms[norms["step"] == step]
            upper, lower = panels[:, column]
            mixed = part[(part["norm2_right"] > 0) & (part["norm2_wrong"] > 0)]
            upper.plot(mixed["norm2_right"], mixed["norm2_wrong"], **style)
            upper.set_title(f"Step {step}{_median_ratio(mixed)}", fontsize=10)
            lower.plot(part["value"], part["best_baseline"], **style)
            upper.set_xlabel("Mean ‖score‖², right completions")
            lower.set_xlabel("Value V")
            lower.set_xlim(-0.03, 1.03)
            lower.set_ylim(-0.03, 1.03)
            lower.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
            lower.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
            lower.axline((0, 0), slope=1, color=GREY, linewidth=1, zorder=0)
            lower.set_aspect("equal")
        panels[0, 0].set_ylabel("Mean ‖score‖², wrong completions")
        panels[1, 0].set_ylabel("Best baseline E[W Z] / E[W], W = ‖score‖²")
        ends = _common_ends(norms)
        ticks = {"subs": (1,), "most": 5} if ends[1] > WIDE * ends[0] else {}
        for axes in panels[0]:
            plain_log(axes.xaxis, **ticks)
            plain_log(axes.yaxis, **ticks)
            axes.set(xlim=ends, ylim=ends, aspect="equal")
            axes.plot(ends, ends, color=GREY, linewidth=1, zorder=0)
    return drawing


def write(results: Results, folder: str | os.PathLike) -> None:
    """Write ``figures/llm_*.{png,pdf}`` of all that the results hold."""
    drawn: dict[str, Figure] = {}
    if results.value_sensitivity is not None:
        drawn["llm_value_sensitivity"] = value_sensitivity(results.value_sensitivity)
    if results.score_norms is not None:
        drawn["llm_assumption6"] = assumption6(results.score_norms)
    for name, figure in drawn.items():
        write_figure(figure, folder, name)


def _colored(steps: Sequence[int]) -> list[tuple[int, str]]:
    return [(step, STEP_COLORS[position % len(STEP_COLORS)]) for position, step in enumerate(steps)]


def _curve(axes: Axes, at_step: pd.DataFrame, kernel: str, color: str) -> None:
    curve = at_step[at_step["kernel"] == kernel].sort_values("bandwidth")
    low, high, mse = (1e3 * curve[name] for name in ("ci_low", "ci_high", "mse"))
    axes.fill_between(curve["bandwidth"], low, high, color=color, alpha=0.2, linewidth=0)
    axes.plot(curve["bandwidth"], mse, color=color, linewidth=2, marker="o", markersize=3)
    for name, dashes in LEVELS.items():
        axes.axhline(1e3 * at_step.loc[at_step["method"] == name, "mse"].item(), color=color, linestyle=dashes)


def _common_ends(norms: pd.DataFrame) -> tuple[float, float]:
    """One range for both axes of the norms, a fifth of a decade wider than the data."""
    both = norms[["norm2_right", "norm2_wrong"]].to_numpy()
    both = both[np.isfinite(both).all(axis=1) & (both > 0).all(axis=1)]
    return (both.min() / 1.6, both.max() * 1.6) if len(both) else (0.1, 10.0)


def _median_ratio(mixed: pd.DataFrame) -> str:
    """ ": median ratio 1.8", of wrong to right; nothing without prompts that have both."""
    if mixed.empty:
        return ""
    ratio = float(f"{np.median(mixed['norm2_wrong'] / mixed['norm2_right']):.2g}")
    return f": median ratio {ratio:,g}"
