"""Figures of the diagnostics on a real language model: the sensitivity to the bandwidth, and Assumption 6."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from llm_experiments.diagnose.results import Results
from paper_figures.shared.charts import BLUE, GREY, plain_log, styled
from paper_figures.shared.output import write_figure
from paper_figures.shared.sensitivity import against_bandwidth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE = 30.0  # from this range on a logarithmic axis shows powers of ten alone


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
        frame = results.value_sensitivity.rename(columns={"ci_low": "low", "ci_high": "high"})
        drawn["llm_value_sensitivity"] = against_bandwidth(frame)
    if results.score_norms is not None:
        drawn["llm_assumption6"] = assumption6(results.score_norms)
    for name, figure in drawn.items():
        write_figure(figure, folder, name)


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
