"""Table 1, value MSE: study ``table1`` beside the paper's numbers."""

import pandas as pd

from paper_figures.shared import paper
from paper_figures.shared.comparison import CELL, beside, wide
from paper_figures.shared.comparison import reductions as compare_reductions
from paper_figures.shared.tidy import by_measure
from simulations.studies.table1 import DIAGNOSTIC

ROLES = {"kae": "predicted", "grpo": "input", "reinforce++": "input"}
CAPTION = (
    "Value MSE (x 0.001) on calibrated populations: ours (Monte Carlo standard error) [the paper's]. Inputs: the "
    f"REINFORCE++ and GRPO rows, which the populations are solved from, an oracle pool of {DIAGNOSTIC.n_oracle}, "
    "256 prompts and Beta-distributed success rates. Predicted: KAE's row and all reductions. The debiased "
    "rows are free of the oracle pool's noise."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """All 18 entries, in plain units.

    summary: Of the study ``table1``.
    Returns: ``dataset, step, method, mse, mcse, mse_debiased, mcse_debiased, paper, role, off_pct``; off_pct is what
        ours is off the paper's.
    """
    frame = by_measure(summary, [*CELL, "method"], ("mse", "mse_debiased")).drop(columns="n")
    frame = frame.rename(columns={"mse_mcse": "mcse", "mse_debiased_mcse": "mcse_debiased"})
    stated = paper.levels(1).rename(columns={"mse": "paper"})[[*CELL, "method", "paper"]]
    frame = frame.merge(stated, on=[*CELL, "method"], validate="one_to_one")
    return frame.assign(role=frame["method"].map(ROLES), off_pct=100 * (frame["mse"] / frame["paper"] - 1))


def reductions(summary: pd.DataFrame) -> pd.DataFrame:
    """The percentage rows, all predicted; columns as in `paper_figures.shared.comparison.reductions`."""
    return compare_reductions(summary, "mse", paper.reductions(1))


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """The table as readers see it, laid out like the paper's."""
    all_entries, all_reductions = table(summary), reductions(summary)
    units = all_entries.assign(**{name: 1000 * all_entries[name] for name in ("mse", "mcse", "paper", "mse_debiased")})
    rows = []
    for method in ("reinforce++", "grpo", "kae"):
        part = units[units["method"] == method]
        rows.append((f"{paper.LABELS[method]} ({ROLES[method]})", beside(part, "mse", "mcse", "paper")))
    for method in ("reinforce++", "grpo", "kae"):
        part = units[units["method"] == method].set_index(CELL)
        rows.append((f"{paper.LABELS[method]}, debiased", part["mse_debiased"].map("{:.2f}".format)))
    for versus in ("reinforce++", "grpo"):
        part = all_reductions[all_reductions["versus"] == versus]
        rows.append((f"Reduction vs. {paper.LABELS[versus]} (%)", beside(part, "reduction_pct", "mcse", "paper")))
    return wide(rows)
