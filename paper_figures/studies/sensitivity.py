"""The sensitivity figure: KAE's value MSE on MATH against bandwidth, for two kernels; study ``sensitivity``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from kaestat.core.bootstrap import NORMAL_975
from paper_figures.shared.sensitivity import against_bandwidth
from paper_figures.shared.tidy import by_measure
from simulations.studies.sensitivity import BANDWIDTHS, KERNELS, method

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    frame = by_measure(summary, key, ("mse", "mse_debiased")).rename(columns={"mse_mcse": "mcse"})
    frame["one_run_sd"] = frame["mcse"] * frame["n"] ** 0.5
    settings = pd.DataFrame(
        [(method(kernel, bandwidth), kernel, bandwidth) for kernel in KERNELS for bandwidth in BANDWIDTHS],
        columns=["method", "kernel", "bandwidth"],
    )
    frame = frame.merge(settings, on="method", how="left")
    frame["method"] = frame["method"].where(frame["kernel"].isna(), "kae")
    return frame[[*key, "kernel", "bandwidth", "mse", "mcse", "mse_debiased", "one_run_sd"]]


def figure(summary: pd.DataFrame) -> Figure:
    """A curve for each kernel and training step with the 95 % spread of single runs."""
    points = table(summary)
    margin = NORMAL_975 * points["one_run_sd"]
    return against_bandwidth(points.assign(low=points["mse"] - margin, high=points["mse"] + margin))


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
