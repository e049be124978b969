"""What Tables 1 and 2 have in common: our numbers beside the paper's, with errors, limits and verdicts."""

from __future__ import annotations

import pandas as pd

from paper_figures.shared import paper

CELL = ["dataset", "step"]
NORMAL_975 = 1.959964


def pick(summary: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Rows of one measure from a study's summary: ``dataset, step, method, estimate, mcse, n``."""
    rows = summary.loc[summary["measure"] == measure, [*CELL, "method", "estimate", "mcse", "n"]]
    if rows.empty:
        raise ValueError(f"summary has no measure {measure!r}; give the summary of the study that this table shows.")
    return rows.reset_index(drop=True)


def reductions(summary: pd.DataFrame, measure: str, stated: pd.DataFrame, *, limit: float) -> pd.DataFrame:
    """KAE's reductions in per cent, beside the paper's.

    Parameters
    ----------
    summary : DataFrame
        Of the study.
    measure : str
        ``reduction_...``; its paired difference ``advantage_...`` must be there too.
    stated : DataFrame
        The paper's rows, ``dataset, step, versus, reduction_pct``.
    limit : float
        Percentage points that ours may be off.

    Returns
    -------
    DataFrame
        ``dataset, step, versus, reduction_pct, mcse, low, high, one_run_sd, paper, off, verdict``: low and high are
        the 95 % Monte Carlo interval; one_run_sd is the standard deviation of a single run of the diagnostic, which
        bounds what agreement can be asked for; off is ours less the paper's. The verdict is "holds" if ours is within
        the limit and the intervals of the reduction and of the difference exclude 0.
    """
    ours = pick(summary, measure).rename(columns={"method": "versus", "estimate": "reduction_pct"})
    advantage = pick(summary, measure.replace("reduction_", "advantage_", 1))
    theirs = stated.rename(columns={"reduction_pct": "paper"})[[*CELL, "versus", "paper"]]
    frame = ours.merge(theirs, on=[*CELL, "versus"], validate="one_to_one")
    margin = NORMAL_975 * frame["mcse"]
    frame = frame.assign(
        low=frame["reduction_pct"] - margin,
        high=frame["reduction_pct"] + margin,
        one_run_sd=frame["mcse"] * frame["n"] ** 0.5,
        off=frame["reduction_pct"] - frame["paper"],
    )
    clear = (frame["low"] > 0) & (advantage["estimate"] > NORMAL_975 * advantage["mcse"])
    frame["verdict"] = [
        verdict(off, limit, "points") if ok else "advantage not clear of 0"
        for off, ok in zip(frame["off"], clear, strict=True)
    ]
    columns = ["versus", "reduction_pct", "mcse", "low", "high", "one_run_sd", "paper", "off", "verdict"]
    return frame[[*CELL, *columns]]


def verdict(off: float, limit: float, unit: str) -> str:
    """ "holds" within the limit, else by how much the number is off."""
    return "holds" if abs(off) <= limit else f"misses: off by {off:+.1f} {unit}, limit {limit:g}"


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
