"""The sensitivity figure: KAE's value MSE on MATH against bandwidth, for two kernels; study ``sensitivity``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from kaestat.core.bootstrap import NORMAL_975
from paper_figures.shared.charts import BLUE, GREEN, GREY, VERMILION, line_key, styled
from simulations.studies.sensitivity import BANDWIDTHS, KERNELS, method

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {10: BLUE, 90: VERMILION, 170: GREEN}
LEVELS = {"grpo": ("GRPO", (0, (5, 2))), "reinforce++": ("REINFORCE++", (0, (1, 1.5)))}
CAPTION = (
    "Value MSE (x 0.001) of KAE on the MATH populations of Table 1, by kernel and bandwidth in steps: ours (Monte "
    "Carlo standard error). The past has four steps at every bandwidth and values stand still, as in Table 1."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Points of the figure.

    summary: Of the study ``sensitivity``.
    Returns: ``dataset, step, method, kernel, bandwidth, mse, mcse, mse_debiased, one_run_sd``; kernel and bandwidth are
        empty for GRPO and REINFORCE++. one_run_sd is the standard deviation of one run with 256 prompts.
    """
    key = ["dataset", "step", "method"]
    level, debiased = (summary[summary["measure"] == measure].set_index(key) for measure in ("mse", "mse_debiased"))
    frame = pd.DataFrame(
        {
            "mse": level["estimate"],
            "mcse": level["mcse"],
            "mse_debiased": debiased["estimate"],
            "one_run_sd": level["mcse"] * level["n"] ** 0.5,
        }
    ).reset_index()
    settings = pd.DataFrame(
        [(method(kernel, bandwidth), kernel, bandwidth) for kernel in KERNELS for bandwidth in BANDWIDTHS],
        columns=["method", "kernel", "bandwidth"],
    )
    frame = frame.merge(settings, on="method", how="left")
    frame["method"] = frame["method"].where(frame["kernel"].isna(), "kae")
    return frame[[*key, "kernel", "bandwidth", "mse", "mcse", "mse_debiased", "one_run_sd"]]


def figure(summary: pd.DataFrame) -> Figure:
    """One panel per kernel: a curve with the 95 % spread of single runs, and both levels, for each training step."""
    points = table(summary)
    with styled(9.2, 4.0) as drawing:
        panels = drawing.subplots(1, len(KERNELS), sharey=True)
        for axes, kernel in zip(panels, KERNELS, strict=True):
            _draw(axes, points, kernel)
        panels[0].set_ylabel("Value MSE (× 0.001, log scale)")
        keys = [line_key(f"KAE, step {step}", color=color, linewidth=2) for step, color in COLORS.items()]
        keys += [line_key(label, color=GREY, linestyle=dashes) for label, dashes in LEVELS.values()]
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return drawing


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """The figure as a table: a row for each kernel and bandwidth, a column for each step."""
    points = table(summary)
    text = [f"{1000 * row.mse:.2f} ({1000 * row.mcse:.2f})" for row in points.itertuples()]
    names = [
        row.method if pd.isna(row.bandwidth) else f"{row.kernel}, {row.bandwidth:g}" for row in points.itertuples()
    ]
    wide = points.assign(text=text, setting=names).pivot_table(
        index="setting", columns="step", values="text", aggfunc="first", sort=False
    )
    return wide.rename(columns=lambda step: f"Step {step}").rename_axis(columns=None).reset_index()


def _draw(axes: Axes, points: pd.DataFrame, kernel: str) -> None:
    for step, color in COLORS.items():
        at_step = points[points["step"] == step]
        curve = at_step[at_step["kernel"] == kernel].sort_values("bandwidth")
        mse, spread = 1000 * curve["mse"], 1000 * NORMAL_975 * curve["one_run_sd"]
        axes.fill_between(curve["bandwidth"], mse - spread, mse + spread, color=color, alpha=0.2, linewidth=0)
        axes.plot(curve["bandwidth"], mse, color=color, linewidth=2, marker="o", markersize=3)
        for name, (_, dashes) in LEVELS.items():
            level = 1000 * at_step.loc[at_step["method"] == name, "mse"].item()
            axes.axhline(level, color=color, linestyle=dashes, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([2, 5, 10, 20, 40], ["2", "5", "10", "20", "40"], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"], minor=False)
    axes.set_yticks([], minor=True)
    axes.set_xlabel("Bandwidth (steps)")
    axes.set_title(f"{kernel.capitalize()} kernel")
