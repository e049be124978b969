"""Figures of reports: value MSE of KAE against its bandwidth on the user's own run, and mean rewards of two runs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kaestat.core.bootstrap import NORMAL_975
from kaestat.report.analysis import Analysis
from kaestat.report.reward_curve import RewardCurve

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with any colour vision; the line styles differ too.
KAE_COLOR = "#0072B2"
LEVEL_STYLES = {"grpo": ("GRPO", "#D55E00", (0, (5, 2))), "reinforce++": ("REINFORCE++", "#4D4D4D", (0, (1, 1.5)))}
STYLE: dict[Any, Any] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "svg.fonttype": "path",
    "svg.hashsalt": "kaestat",  # the same figure gives the same bytes
}


def risk_against_bandwidth(analysis: Analysis) -> Figure:
    """A figure with a panel per kernel: risk path with 95 % band, and GRPO and REINFORCE++ as levels."""
    import matplotlib
    from matplotlib.figure import Figure

    if not analysis.paths or analysis.risk is None:
        raise ValueError("the analysis has no bandwidth paths: call analyze with bandwidth_paths=True.")
    unit, n_panels = analysis.unit, len(analysis.paths)
    levels = analysis.risk[analysis.risk["method"].isin(LEVEL_STYLES)]
    risks = [levels["mse"], *(selection.path["risk"] for selection in analysis.paths.values())]
    lowest, highest = (float(pick(pick(risk) for risk in risks if len(risk))) / 10.0**unit.power for pick in (min, max))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6 * n_panels, 4.2), layout="constrained")
        panels = figure.subplots(1, n_panels, sharey=True, squeeze=False)[0]
        for axes, (kernel, selection) in zip(panels, analysis.paths.items(), strict=True):
            _draw(axes, selection.path, levels, 10.0**unit.power, f"{analysis.facts.time_axis}s")
            axes.set_title(f"{kernel.capitalize()} kernel", loc="left", fontsize=10, fontweight="bold")
            axes.set_xscale("log")
            plain_ticks(axes.xaxis)
        if lowest > 0:  # an unbiased estimate of a small MSE may be negative
            panels[0].set_yscale("log")
            panels[0].set_ylim(0.4 * lowest, 2.0 * highest)
            plain_ticks(panels[0].yaxis)
        panels[0].set_ylabel(f"Value MSE{unit.times}")
    return figure


def _draw(axes: Axes, path: pd.DataFrame, levels: pd.DataFrame, scale: float, steps: str) -> None:
    bandwidth = path["bandwidth"].to_numpy()
    risk, reach = path["risk"].to_numpy() / scale, NORMAL_975 * path["se"].to_numpy() / scale
    best = int(np.argmin(risk))
    axes.fill_between(bandwidth, risk - reach, risk + reach, color=KAE_COLOR, alpha=0.25, linewidth=0)
    label = f"KAE, lowest {risk[best]:.2f} at {bandwidth[best]:.1f} {steps}"
    axes.plot(bandwidth, risk, color=KAE_COLOR, linewidth=2, label=label)
    axes.plot(bandwidth[best], risk[best], "o", color=KAE_COLOR, markersize=5)
    row: Any
    for row in levels.itertuples():
        name, color, dashes = LEVEL_STYLES[row.method]
        axes.axhspan(row.ci_low / scale, row.ci_high / scale, color=color, alpha=0.15, linewidth=0)
        label = f"{name}, {row.mse / scale:.1f}"
        axes.axhline(row.mse / scale, color=color, linestyle=dashes, linewidth=1.6, label=label)
    axes.set_xlabel(f"Bandwidth ({steps}, log scale)")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), frameon=False, fontsize=9)  # where no line runs


def mean_rewards(names: Sequence[str], curves: Sequence[RewardCurve]) -> Figure:
    """Mean reward of several runs against their completions."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.subplots()
        for name, curve, color in zip(names, curves, (KAE_COLOR, "#D55E00"), strict=True):
            axes.plot(curve.completions, curve.means(), color=color, label=name)
        axes.set_xlabel("Completions")
        axes.set_ylabel("Mean reward")
        axes.legend(frameon=False)
    return figure


def render(figure: Figure, file_format: str) -> bytes:
    """The figure as bytes of a PNG, PDF or SVG file; the same figure gives the same bytes."""
    import matplotlib

    buffer = io.BytesIO()
    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=file_format, dpi=200, metadata=undated[file_format])
    return buffer.getvalue()


def plain_ticks(axis: Axis, subs: Sequence[float] = (1, 2, 5), most: int | None = None) -> None:
    """Give a logarithmic axis plain numbers at multiples of powers of ten, at most so many."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=subs, numticks=most))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
