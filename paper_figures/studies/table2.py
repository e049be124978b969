"""Table 2, gradient MSE: study ``table2`` beside the paper's percentages."""

import pandas as pd

from paper_figures.shared import paper
from paper_figures.shared.comparison import CELL, beside, wide
from paper_figures.shared.comparison import reductions as compare_reductions
from paper_figures.shared.tidy import by_measure
from simulations.studies.table2 import DIAGNOSTIC

CAPTION = (
    "Gradient MSE on the populations of Table 1, in the bandit's units (scores of norm 1; x 0.001): ours (Monte Carlo "
    "standard error), and the reductions [with the paper's]. Only the percentage rows are predictions; absolute levels "
    f"depend on the model's score norms. Inputs: those of Table 1, and a reference pool of {DIAGNOSTIC.n_reference}."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """The 18 levels in the bandit's units: ``dataset, step, method, gradient_mse, mcse``.

    summary: Of the study ``table2``.
    """
    frame = by_measure(summary, [*CELL, "method"], ("gradient_mse",)).drop(columns="n")
    return frame.rename(columns={"gradient_mse_mcse": "mcse"})


def reductions(summary: pd.DataFrame) -> pd.DataFrame:
    """The percentage rows, all predicted; columns as in `paper_figures.shared.comparison.reductions`."""
    return compare_reductions(summary, "gradient_mse", paper.reductions(2))


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """The table as readers see it, laid out like the paper's Table 1."""
    levels, compared = table(summary), reductions(summary)
    rows = []
    for method in ("reinforce++", "grpo", "kae"):
        part = levels[levels["method"] == method].set_index(CELL)
        text = [f"{1000 * row.gradient_mse:.2f} ({1000 * row.mcse:.2f})" for row in part.itertuples()]
        rows.append((paper.LABELS[method], pd.Series(text, index=part.index)))
    for versus in ("reinforce++", "grpo"):
        part = compared[compared["versus"] == versus]
        rows.append((f"Reduction vs. {paper.LABELS[versus]} (%)", beside(part, "reduction_pct", "mcse", "paper")))
    return wide(rows)
