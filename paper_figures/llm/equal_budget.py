"""Noise of the gradient at an equal budget of completions: tables, and a figure of noise against group size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kaestat.report.plots import STYLE
from kaestat.theory import optimal_group_size
from llm_experiments.diagnose.estimators import WEIGHTED_KAE_EB
from llm_experiments.diagnose.results import Results
from paper_figures.llm.tables import label
from paper_figures.shared.charts import BLACK, BLUE, GREEN, GREY, PURPLE, VERMILION, Mark, key, plain_log
from paper_figures.shared.output import write_csv, write_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTION = (
    "Step {step}: completions that a design needs for the gradient's noise of one completion of {reference}, with 95 % "
    "jackknife intervals over {n} prompts; below 1 is better. G completions per prompt and step; n of each past step "
    "where a baseline has a history."
)
PAIRED_CAPTION = (
    "Noise of the gradient with G = {size}, relative to that with weighted KAE-EB, with 95 % jackknife intervals over "
    "{n} prompts, paired; above 1 is worse. Baselines with a history have the longest one."
)
SIGNAL_CAPTION = (
    "Signal and noise of the gradient (standard error over prompts). Best G of a leave-one-out mean: by the closed "
    "form, where prompts cost nothing beyond their completions."
)
DRAWN_CAPTION = (
    "Noise of gradients drawn outright from the policy, one backward pass each, and by the formula, for the diagnosed "
    "prompts alone (standard errors; {draws} gradients of each design). z: difference in standard errors."
)
SIGNAL_ROWS = {
    "prompt_norm2": "Squared norm of a prompt's gradient",
    "total_norm2": "Squared norm of the mean gradient (signal)",
    "between": "Between prompts",
    "value_noise": "Within prompts, true value as baseline",
    "estimation": "What a mean of one other completion adds",
}
SERIES = {
    "grpo": Mark(VERMILION, "s"),
    "kae": Mark(BLUE, "o"),
    "none": Mark(PURPLE, "v"),
    "reinforce++@exact": Mark(GREY, "^", filled=False),
    "kae@exact": Mark(BLUE, "o", filled=False),
    "kae_eb@exact": Mark(GREEN, "D", filled=False),
    "best_baseline": Mark(BLACK, "x"),
}


def write(results: Results, folder: str | os.PathLike) -> list[str]:
    """Write ``tables/NAME.{csv,md,tex}`` of `tables` below a results folder, and return their names."""
    written = []
    for name, shown, caption in tables(results):
        write_csv(shown, Path(folder) / "tables", name)
        write_table(shown, folder, name, caption)
        written.append(name)
    return written


def tables(results: Results) -> Iterator[tuple[str, pd.DataFrame, str]]:
    """Name, cells and caption of each table that the results have."""
    if results.equal_budget is not None:
        for step, frame in results.equal_budget.groupby("step"):
            group = reference_size(frame)
            caption = CAPTION.format(step=step, reference=f"GRPO with G = {group}", n=frame["n_prompts"].iloc[0])
            yield f"llm_equal_budget_{step}", design_table(frame), caption
        paired = paired_table(results.equal_budget)
        if len(paired):
            size, n = results.equal_budget["group_size"].min(), results.equal_budget["n_prompts"].iloc[0]
            yield "llm_equal_budget_paired", paired, PAIRED_CAPTION.format(size=size, n=n)
    if results.gradient_signal is not None:
        yield "llm_gradient_signal", signal_table(results.gradient_signal), SIGNAL_CAPTION
    if results.equal_budget_drawn is not None:
        drawn = results.equal_budget_drawn
        yield "llm_equal_budget_drawn", drawn_table(drawn), DRAWN_CAPTION.format(draws=f"{drawn['draws'].iloc[0]:,}")


def reference_size(frame: pd.DataFrame) -> int:
    """G of the design that the others are relative to."""
    itself = frame[(frame["relative_low"] == 1) & (frame["relative_high"] == 1)]
    return int(itself["group_size"].iloc[0])


def design_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One step: a row for each method and history, a column for each G."""
    sizes = sorted(frame["group_size"].unique())
    rows = []
    for (method, past), part in frame.groupby(["method", "past"], sort=False):
        cells = part.set_index("group_size")
        name = label(method) + (f", n = {past}" if past else "")
        rows.append([name, *(_cell(cells.loc[size]) if size in cells.index else "" for size in sizes)])
    return pd.DataFrame(rows, columns=["", *(f"G = {size}" for size in sizes)])


def paired_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The smallest G: a row for each other method, a column for each step; no rows without weighted KAE-EB."""
    frame = frame[frame["group_size"] == frame["group_size"].min()]
    frame = frame[frame["past"] == frame.groupby("method")["past"].transform("max")]
    steps = sorted(frame["step"].unique())
    rows = [
        [label(method), *(_cell(cells.loc[step], "to_weighted") if step in cells.index else "" for step in steps)]
        for method, part in frame[frame["to_weighted"].notna()].groupby("method", sort=False)
        if method != WEIGHTED_KAE_EB and len(cells := part.set_index("step"))
    ]
    return pd.DataFrame(rows, columns=["", *(f"Step {step}" for step in steps)])


def signal_table(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each quantity and for what follows of them, a column for each step."""
    steps = sorted(frame["step"].unique())
    by_step = {step: frame[frame["step"] == step].set_index("quantity") for step in steps}
    rows = [
        [text, *(_with_error(each.loc[name, "mean"], each.loc[name, "se"]) for each in by_step.values())]
        for name, text in SIGNAL_ROWS.items()
    ]
    means = [each["mean"] for each in by_step.values()]
    rows.append(["Between / within", *(f"{mean['between'] / mean['value_noise']:.2g}" for mean in means)])
    rows.append(["Best G of a leave-one-out mean", *(_best_size(mean) for mean in means)])
    return pd.DataFrame(rows, columns=["", *(f"Step {step}" for step in steps)])


def drawn_table(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each step and design."""
    z = (frame["drawn"] - frame["formula"]) / np.hypot(frame["drawn_se"], frame["formula_se"])
    return pd.DataFrame(
        {
            "Step": frame["step"].astype(str),
            "Method": frame["method"].map(label),
            "G": frame["group_size"].astype(str),
            "Formula": [_with_error(*pair) for pair in zip(frame["formula"], frame["formula_se"], strict=True)],
            "Drawn": [_with_error(*pair) for pair in zip(frame["drawn"], frame["drawn_se"], strict=True)],
            "z": [f"{each:+.1f}" for each in z],
        }
    )


def figure(frame: pd.DataFrame) -> Figure:
    """One panel per step: noise relative to the reference's against G, with 95 % intervals.

    Parameters
    ----------
    frame : DataFrame
        ``equal_budget`` of the results. Baselines with a history have the longest one.
    """
    import matplotlib
    from matplotlib.figure import Figure

    steps = sorted(frame["step"].unique())
    shown = {name: mark for name, mark in SERIES.items() if name in set(frame["method"])}
    with matplotlib.rc_context(STYLE):
        columns = min(2, len(steps))
        rows = -(-len(steps) // columns)
        drawing = Figure(figsize=(1.2 + 3.2 * columns, 1.0 + 3.2 * rows), layout="constrained")
        grid = drawing.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for spare in grid.ravel()[len(steps) :]:
            spare.remove()
        for axes, step in zip(grid.ravel(), steps, strict=False):
            part = frame[frame["step"] == step]
            axes.axhline(1.0, color="0.8", linewidth=1, zorder=0)
            for position, (name, mark) in enumerate(shown.items()):
                line = part[part["method"] == name]
                line = line[line["past"] == line["past"].max()].sort_values("group_size")
                aside = 2 ** (0.07 * (position - (len(shown) - 1) / 2))
                spread = [line["relative"] - line["relative_low"], line["relative_high"] - line["relative"]]
                style = mark.style | {"linestyle": "-" if mark.filled else "--", "markersize": 4.5}
                axes.errorbar(
                    aside * line["group_size"], line["relative"], yerr=spread, elinewidth=0.8, linewidth=1.2, **style
                )
            sizes = sorted(part["group_size"].unique())
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set_title(f"Step {step}", fontsize=10)
        plain_log(grid[0, 0].yaxis)
        size = reference_size(frame[frame["step"] == steps[0]])
        for axes in grid[-1]:
            axes.set_xlabel("Completions per prompt, G")
        for axes in grid[:, 0]:
            axes.set_ylabel(f"Completions for one of GRPO, G = {size}")
        drawing.legend(
            handles=[key(mark, label(name), linestyle="-" if mark.filled else "--") for name, mark in shown.items()],
            loc="outside lower center",
            ncols=3,
            frameon=False,
        )
    return drawing


def _cell(row: pd.Series, ratio: str = "relative") -> str:
    value, low, high = (row[f"{ratio}{end}"] for end in ("", "_low", "_high"))
    if np.isnan(value):
        return ""
    return f"{value:.2f}" if low == high else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _best_size(mean: pd.Series) -> str:
    if not (mean["between"] > 0 and mean["estimation"] > 0 and mean["value_noise"] >= 0):
        return ""
    return str(optimal_group_size(mean["value_noise"], mean["between"], estimation=mean["estimation"]))


def _with_error(value: float, error: float) -> str:
    return f"{float(f'{value:.3g}'):g} ({float(f'{error:.2g}'):g})"
