"""The paper's sensitivity figure for the user's own run: value MSE of KAE against its bandwidth."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kaestat.core.bootstrap import NORMAL_975
from kaestat.report.analysis import Analysis
from kaestat.report.tables import unit_of

if TYPE_CHECKING:
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


def risk_against_bandwidth(analysis: Analysis, kernels: Sequence[str] | None = None) -> Figure:
    """A figure with a panel per kernel: risk path with 95 % band, and GRPO and REINFORCE++ as levels.

    A ValueError if the analysis has no bandwidth paths.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if not analysis.paths:
        raise ValueError("the analysis has no bandwidth paths: call analyze with bandwidth_paths=True.")
    kernels = list(analysis.paths) if kernels is None else list(kernels)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6 * len(kernels), 4.2), layout="constrained")
        panels = figure.subplots(1, len(kernels), sharey=True, squeeze=False)[0]
        for axes, kernel in zip(panels, kernels, strict=True):
            _draw(axes, analysis, kernel)
        _scale(panels[0], analysis)
        told = [unit_of(analysis).times.strip(), "log scale" if panels[0].get_yscale() == "log" else ""]
        panels[0].set_ylabel(f"Value MSE ({', '.join(filter(None, told))})" if any(told) else "Value MSE")
    return figure


def render(figure: Figure, file_format: str) -> bytes:
    """The figure as bytes of a PNG, PDF or SVG file; the same figure gives the same bytes."""
    import matplotlib

    buffer = io.BytesIO()
    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=file_format, dpi=200, metadata=undated[file_format])
    return buffer.getvalue()


def _draw(axes: Axes, analysis: Analysis, kernel: str) -> None:
    selection, levels = analysis.paths[kernel], analysis.levels
    unit = 10.0 ** unit_of(analysis).power
    bandwidth = selection.path["bandwidth"].to_numpy()
    risk, se = (selection.path[name].to_numpy() / unit for name in ("risk", "se"))
    axes.fill_between(
        bandwidth, risk - NORMAL_975 * se, risk + NORMAL_975 * se, color=KAE_COLOR, alpha=0.25, linewidth=0
    )
    best = int(np.argmin(risk))
    lowest = f"KAE, lowest {risk[best]:.2f} at {bandwidth[best]:.1f} {analysis.facts.time_axis}s"
    axes.plot(bandwidth, risk, color=KAE_COLOR, linewidth=2, label=lowest)
    axes.plot(bandwidth[best], risk[best], "o", color=KAE_COLOR, markersize=5)
    assert levels is not None  # levels exist if paths do
    row: Any
    for row in levels.itertuples():
        label, color, dashes = LEVEL_STYLES[row.method]
        axes.axhspan(row.ci_low / unit, row.ci_high / unit, color=color, alpha=0.15, linewidth=0)
        told = f"{label}, {row.mse / unit:.1f}"
        axes.axhline(row.mse / unit, color=color, linestyle=dashes, linewidth=1.6, label=told)
    axes.set_xscale("log")
    plain_ticks(axes.xaxis)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(f"{kernel.capitalize()} kernel", loc="left", fontsize=10, fontweight="bold")
    axes.legend(
        loc="upper left", bbox_to_anchor=(0, -0.2), frameon=False, fontsize=9
    )  # labels in the panel may collide
    axes.set_xlabel(f"Bandwidth ({analysis.facts.time_axis}s, log scale)")


def _scale(axes: Axes, analysis: Analysis) -> None:
    """A logarithmic MSE axis for all panels; a linear one where some risk is estimated at or below 0."""
    assert analysis.levels is not None
    risks = [analysis.levels["mse"], *(selection.path["risk"] for selection in analysis.paths.values())]
    unit = 10.0 ** unit_of(analysis).power
    lowest, highest = (pick(pick(risk) for risk in risks) / unit for pick in (min, max))
    if lowest > 0:
        axes.set_yscale("log")
        axes.set_ylim(0.4 * lowest, 2.0 * highest)
        plain_ticks(axes.yaxis)


def plain_ticks(axis: Axis, subs: Sequence[float] = (1, 2, 5), most: int | None = None) -> None:
    """Give a logarithmic axis plain numbers at multiples of powers of ten, at most so many."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=subs, numticks=most))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
