"""What Tables 1 and 2 have in common: our numbers beside the paper's, with errors, limits and verdicts."""

import pandas as pd

from kaestat.core.bootstrap import NORMAL_975
from paper_figures.shared import paper

CELL = ["dataset", "step"]


def pick(summary: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Rows of one measure from a study's summary: ``dataset, step, method, estimate, mcse, n``."""
    rows = summary.loc[summary["measure"] == measure, [*CELL, "method", "estimate", "mcse", "n"]]
    if rows.empty:
        raise ValueError(f"summary has no measure {measure!r}; give the summary of the study that this table shows.")
    return rows.reset_index(drop=True)


def reductions(summary: pd.DataFrame, measure: str, stated: pd.DataFrame) -> pd.DataFrame:
    """KAE's reductions in per cent, beside the paper's.

    summary: Of the study.
    measure: ``reduction_...``; its paired difference ``advantage_...`` must be there too.
    stated: The paper's rows, ``dataset, step, versus, reduction_pct``.
    Returns: ``dataset, step, versus, reduction_pct, mcse, low, high, one_run_sd, paper, off, z, advantage,
        advantage_mcse``: low and high are the 95 % Monte Carlo interval; one_run_sd is the standard deviation of a
        single run of the diagnostic; off is ours less the paper's, and z is off in units of one_run_sd; advantage is
        the difference of the MSEs.
    """
    ours = pick(summary, measure).rename(columns={"method": "versus", "estimate": "reduction_pct"})
    advantage = pick(summary, measure.replace("reduction_", "advantage_", 1)).drop(columns="n")
    advantage.columns = [*CELL, "versus", "advantage", "advantage_mcse"]
    theirs = stated.rename(columns={"reduction_pct": "paper"})[[*CELL, "versus", "paper"]]
    frame = ours.merge(theirs, on=[*CELL, "versus"], validate="one_to_one")
    frame = frame.merge(advantage, on=[*CELL, "versus"], validate="one_to_one")
    margin = NORMAL_975 * frame["mcse"]
    frame = frame.assign(
        low=frame["reduction_pct"] - margin,
        high=frame["reduction_pct"] + margin,
        one_run_sd=frame["mcse"] * frame["n"] ** 0.5,
        off=frame["reduction_pct"] - frame["paper"],
    )
    columns = ["versus", "reduction_pct", "mcse", "low", "high", "one_run_sd", "paper", "off", "z"]
    frame["z"] = frame["off"] / frame["one_run_sd"]
    return frame[[*CELL, *columns, "advantage", "advantage_mcse"]]


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
