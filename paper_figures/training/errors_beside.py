"""Tables 1 and 2 of one's own runs beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from llm_experiments.diagnose.results import Results, read_results
from paper_figures.llm.tables import PAPERS, reductions
from paper_figures.shared import paper

CAPTION = (
    "Table {number}: ours with standard errors over prompts, or 95 % intervals of the reductions, and the paper's "
    "after the bar. Ours is the paper's own figure, which holds the noise of the oracle pool; {unit}"
)
UNITS = {
    1: "MSE x 0.001.",
    2: "its gradient MSE has a unit that the paper's caption leaves open, so that only the reductions compare.",
}
SCALES = {1: 1e3, 2: 1.0}


def errors_beside(number: int, folders: Sequence[Path]) -> pd.DataFrame:
    """Ours and the paper's, a row for each data set, step and quantity.

    Parameters
    ----------
    number : int
        1 or 2.
    folders : sequence of Path
        Results of the diagnostics of runs.

    Returns
    -------
    DataFrame
        ``dataset, step, quantity, ours, low, high, paper``: the quantity is a method's MSE, with the ends of one
        standard error, or ``reduction METHOD``, in per cent, with those of its 95 % interval; NaN where the paper has
        no such number.

    Raises
    ------
    ValueError
        If a folder lacks what the table shows.
    """
    rows = []
    for folder in folders:
        results = read_results(folder)
        frame, compared = _of(results, number)
        if frame is None or compared is None:
            raise ValueError(f"{folder}: lacks the {'value' if number == 1 else 'gradient'} MSE; finish its diagnosis.")
        data = _data_set(folder, results)
        for row in frame[frame["method"].isin(PAPERS)].itertuples():
            level, se = SCALES[number] * row.mse, SCALES[number] * row.se
            rows.append((data, row.step, row.method, level, level - se, level + se))
        for row in reductions(compared).itertuples():
            rows.append((data, row.step, f"reduction {row.versus}", row.reduction_pct, row.low, row.high))
    found = pd.DataFrame(rows, columns=["dataset", "step", "quantity", "ours", "low", "high"])
    printed = _printed(number)
    keys = zip(found["dataset"], found["step"], found["quantity"], strict=True)
    return found.assign(paper=[printed.get(key, np.nan) for key in keys])


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Text cells: quantities in rows, steps in columns."""
    rows = []
    for (data, quantity), part in frame.groupby(["dataset", "quantity"], sort=False):
        name, _, versus = str(quantity).partition(" ")
        title = f"Reduction vs. {paper.LABELS[versus]} (%)" if versus else paper.LABELS[name]
        row = {"Data": paper.LABELS.get(str(data), str(data)), "": title}
        for each in part.itertuples():
            places = 1 if versus else 2
            spread = f" [{each.low:.1f}, {each.high:.1f}]" if versus else f" ± {each.high - each.ours:.2f}"
            ours = f"{each.ours:.{places}f}{spread}"
            row[f"Step {each.step}"] = ours if np.isnan(each.paper) else f"{ours} / {each.paper:g}"
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def _data_set(folder: Path, results: Results) -> str:
    """The task's name, which every stage of a diagnosis notes in its provenance."""
    stages = (stage for stage in results.provenance.values() if isinstance(stage, dict))
    names = {str(stage["config"]["task"]["name"]) for stage in stages if "config" in stage}
    if len(names) != 1:
        raise ValueError(
            f"{folder}: its provenance names {len(names)} tasks; the table needs one data set for each folder."
        )
    return names.pop()


def _of(results: Results, number: int) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    if number == 1:
        return results.value_mse, results.value_mse_differences
    return results.gradient_mse, results.gradient_mse_differences


def _printed(number: int) -> dict[tuple[str, int, str], float]:
    """The paper's numbers by data set, step and quantity."""
    levels, reduced = (
        (paper.table1(), paper.table1_reductions()) if number == 1 else (paper.table2(), paper.table2_reductions())
    )
    found = {(row.dataset, row.step, f"reduction {row.versus}"): row.reduction_pct for row in reduced.itertuples()}
    if number == 1:
        found |= {(row.dataset, row.step, row.method): float(row.printed) for row in levels.itertuples()}
    return found
