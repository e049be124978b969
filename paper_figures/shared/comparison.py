"""What Tables 1 and 2 have in common: our numbers beside the paper's, with errors."""

import pandas as pd

from paper_figures.shared import paper
from paper_figures.shared.tidy import by_measure

CELL = ["dataset", "step"]


def reductions(summary: pd.DataFrame, measure: str, stated: pd.DataFrame) -> pd.DataFrame:
    """KAE's reductions in per cent, beside the paper's.

    summary: Of the study.
    measure: ``mse`` or ``gradient_mse``, whose ``reduction_...`` and paired difference ``advantage_...`` must be there.
    stated: The paper's rows, ``dataset, step, versus, reduction_pct``.
    Returns: ``dataset, step, versus, reduction_pct, mcse, advantage, advantage_mcse, paper``; advantage is the
        difference of the MSEs.
    """
    ours = by_measure(summary, [*CELL, "method"], (f"reduction_{measure}", f"advantage_{measure}")).drop(columns="n")
    ours.columns = [*CELL, "versus", "reduction_pct", "mcse", "advantage", "advantage_mcse"]
    theirs = stated.rename(columns={"reduction_pct": "paper"})[[*CELL, "versus", "paper"]]
    return ours.merge(theirs, on=[*CELL, "versus"], validate="one_to_one")


def wide(rows: list[tuple[str, pd.Series]]) -> pd.DataFrame:
    """Text rows, each indexed by (dataset, step), under the paper's column heads."""
    columns = [(dataset, step) for dataset in paper.DATASETS for step in paper.STEPS]
    head = [f"{paper.LABELS[dataset]} {step}" for dataset, step in columns]
    body = [[label, *(text[column] for column in columns)] for label, text in rows]
    return pd.DataFrame(body, columns=["", *head])


def beside(frame: pd.DataFrame, value: str, mcse: str, theirs: str) -> pd.Series:
    """ "ours (error) [paper's]" of each row, indexed by (dataset, step)."""
    text = [
        f"{ours:.2f} ({error:.2f}) [{stated:g}]"
        for ours, error, stated in zip(frame[value], frame[mcse], frame[theirs], strict=True)
    ]
    return pd.Series(text, index=pd.MultiIndex.from_frame(frame[CELL]))
