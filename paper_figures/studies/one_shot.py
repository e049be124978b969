"""The one-shot regime, one prompt repeated in every batch: study ``one_shot``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from paper_figures.shared.charts import BLACK, BLUE, LABELS, MARKS, SKY, Mark, error_bars, key, styled
from paper_figures.shared.finding import Finding, below
from paper_figures.shared.tidy import by_measure, span, with_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = {
    "grpo": MARKS["grpo"],
    "kae_stream": Mark(BLUE, "o"),
    "kae": Mark(SKY, "D", filled=False),
    "pooled_oracle": Mark(BLACK, "x"),
}
NAMES = LABELS | {"kae": "KAE over all copies"}
NEAR = 1.5  # times the pooled oracle's MSE
CAPTION = (
    "Value MSE (x 0.001; Monte Carlo standard error) with one prompt, 128 copies of it in every batch and G "
    "completions of each copy. KAE by stream, as in the paper, smooths each copy's own past; the oracle pools all "
    "rewards of the step."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every group size and method.

    summary: Of the study ``one_shot``.
    Returns: ``copies, group_size, method, mse, mse_mcse, reduction_vs_grpo_pct, reduction_vs_grpo_pct_mcse, n``; no
        reduction where there is no GRPO, at G = 1, and none of its own.
    """
    return by_measure(summary, ["copies", "group_size", "method"], ("mse", "reduction_vs_grpo_pct"))


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each method, a column for each group size."""
    cells = table(summary).set_index(["method", "group_size"])
    sizes = cells.index.get_level_values("group_size").unique()
    rows = []
    for method in SERIES:
        part = [cells.loc[method, size] if (method, size) in cells.index else None for size in sizes]
        text = ["" if cell is None else with_error(1000 * cell["mse"], 1000 * cell["mse_mcse"]) for cell in part]
        gains = [
            "" if cell is None else with_error(cell["reduction_vs_grpo_pct"], cell["reduction_vs_grpo_pct_mcse"])
            for cell in part[1:]
        ]
        rows.append((NAMES[method], *text, *gains))
    heads = [*(f"MSE, G = {size}" for size in sizes), *(f"Reduction vs. GRPO (%), G = {size}" for size in sizes[1:])]
    return pd.DataFrame(rows, columns=["Values", *heads])


def findings(summary: pd.DataFrame) -> list[Finding]:
    """KAE by stream between GRPO and the pooled oracle."""
    cells = table(summary).set_index(["method", "group_size"])
    stream, pooled = cells.loc["kae_stream"], cells.loc["pooled_oracle"]
    gain = stream.dropna(subset=["reduction_vs_grpo_pct"])
    ratio, copies = stream["mse"] / pooled["mse"], stream["copies"].max()
    error = ratio * ((stream["mse_mcse"] / stream["mse"]) ** 2 + (pooled["mse_mcse"] / pooled["mse"]) ** 2) ** 0.5
    return [
        Finding(
            "KAE by stream has a smaller value MSE than GRPO",
            below(-gain["reduction_vs_grpo_pct"], gain["reduction_vs_grpo_pct_mcse"]),
            f"smaller by {span(gain['reduction_vs_grpo_pct'], '.1f')} %",
            "paper",
            ("one_shot_value",),
        ),
        Finding(
            f"KAE by stream comes within {NEAR:g} times the pooled oracle's value MSE",
            below(ratio, error, NEAR),
            f"{span(ratio, '.1f')} times it; the oracle averages {copies:g} G rewards of the step",
        ),
    ]


def figure(summary: pd.DataFrame) -> Figure:
    """MSE against group size, a curve for each method."""
    frame = table(summary)
    sizes = sorted(frame["group_size"].unique())
    with styled(6.4, 4.0) as drawing:
        axes = drawing.subplots()
        for method, mark in SERIES.items():
            part = frame[frame["method"] == method].sort_values("group_size")
            error_bars(axes, part["group_size"], part["mse"], part["mse_mcse"], mark, linestyle="-", linewidth=1.2)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(sizes, [f"{size}" for size in sizes], minor=False)
        axes.set_xticks([], minor=True)
        axes.set_xlabel("Group size G (log scale)")
        axes.set_ylabel("Value MSE (log scale)")
        keys = [key(mark, NAMES[name], linestyle="-") for name, mark in SERIES.items()]
        drawing.legend(handles=keys, loc="outside right center", frameon=False)
    return drawing
