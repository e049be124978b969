"""The one-shot regime, one prompt repeated in every batch: study ``one_shot``."""

import pandas as pd

from paper_figures.shared.charts import LABELS
from paper_figures.shared.finding import Finding, below
from paper_figures.shared.tidy import by_measure, span, text_grid

METHODS = ("grpo", "kae_stream", "kae", "pooled_oracle")
ROWS = {name: LABELS[name] for name in METHODS} | {"kae": "KAE over all copies"}
SIZES = (1, 4, 8)
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
    frame = table(summary)
    frame = frame.assign(mse=1000 * frame["mse"], mse_mcse=1000 * frame["mse_mcse"])
    sizes = {size: f"MSE, G = {size}" for size in SIZES}
    gains = {size: f"Reduction vs. GRPO (%), G = {size}" for size in SIZES if size > 1}
    levels = text_grid(frame, "mse", "method", ROWS, "group_size", sizes)
    return levels.join(text_grid(frame, "reduction_vs_grpo_pct", "method", ROWS, "group_size", gains).drop(columns=""))


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
