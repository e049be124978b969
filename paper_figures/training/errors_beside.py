"""Tables 1 and 2 of one's own runs beside the paper's."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from llm_experiments.diagnose.results import Results, read_results
from paper_figures.llm.tables import PAPERS, reductions
from paper_figures.shared import paper

CAPTION = (
    "Table {number}: ours with standard errors over prompts, or 95 % intervals of the reductions, and the paper's "
    "after the bar. Sticky prompts are the minibatch that the run trained on just before, as in the paper; random ones "
    "are drawn from its training set. Ours is the paper's own figure, which holds the noise of the oracle pool; {unit}"
)
UNITS = {
    1: "MSE x 0.001.",
    2: "its gradient MSE has a unit that the paper's caption leaves open, so that only the reductions compare.",
}
SCALES = {1: 1e3, 2: 1.0}


def errors_beside(number: int, folders: Sequence[Path]) -> pd.DataFrame:
    """Ours and the paper's, a row for each results folder, step and quantity.

    number: 1 or 2.
    folders: Results of the diagnostics of runs.
    Returns: ``run, dataset, prompts, step, quantity, ours, low, high, paper``: the run is the folder's name, prompts
        are ``sticky`` or ``random``, the quantity is a method's MSE, with the ends of one standard error, or
        ``reduction METHOD``, in per cent, with those of its 95 % interval; NaN where the paper has no such number, as
        of random prompts.
    Raises ValueError if a folder lacks what the table shows.
    """
    rows = []
    for folder in folders:
        results = read_results(folder)
        kind = "value" if number == 1 else "gradient"
        frame, compared = (getattr(results, f"{kind}_mse{name}") for name in ("", "_differences"))
        if frame is None or compared is None:
            raise ValueError(f"{folder}: lacks the {kind} MSE; finish its diagnosis.")
        part = (folder.name, *_measured_on(folder, results))
        for row in frame[frame["method"].isin(PAPERS)].itertuples():
            level, se = SCALES[number] * row.mse, SCALES[number] * row.se
            rows.append((*part, row.step, row.method, level, level - se, level + se))
        for row in reductions(compared).itertuples():
            rows.append((*part, row.step, f"reduction {row.versus}", row.reduction_pct, row.low, row.high))
    found = pd.DataFrame(rows, columns=["run", "dataset", "prompts", "step", "quantity", "ours", "low", "high"])
    printed = _printed(number)
    keys = zip(found["dataset"], found["prompts"], found["step"], found["quantity"], strict=True)
    return found.assign(paper=[printed.get(key, np.nan) for key in keys])


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Text cells: quantities in rows, steps in columns; runs have a column where several share data set and prompts."""
    rows, parts = [], frame.groupby(["dataset", "prompts"])["run"].nunique()
    for (run, data, prompts, quantity), part in frame.groupby(["run", "dataset", "prompts", "quantity"], sort=False):
        name, _, versus = str(quantity).partition(" ")
        title = f"Reduction vs. {paper.LABELS[versus]} (%)" if versus else paper.LABELS[name]
        row = {"Run": run} if parts.max() > 1 else {}
        row |= {"Data": paper.LABELS.get(str(data), str(data)), "Prompts": prompts, "": title}
        for each in part.itertuples():
            places = 1 if versus else 2
            spread = f" [{each.low:.1f}, {each.high:.1f}]" if versus else f" ± {each.high - each.ours:.2f}"
            ours = f"{each.ours:.{places}f}{spread}"
            row[f"Step {each.step}"] = ours if np.isnan(each.paper) else f"{ours} / {each.paper:g}"
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def _measured_on(folder: Path, results: Results) -> tuple[str, str]:
    """The task's name and the kind of prompts, which every stage of a diagnosis notes in its provenance."""
    stages = (stage for stage in results.provenance.values() if isinstance(stage, dict))
    configs = [stage["config"] for stage in stages if "config" in stage]
    # Those of a minibatch are named one by one.
    found = {(str(each["task"]["name"]), "sticky" if each.get("problem_ids") else "random") for each in configs}
    if len(found) != 1:
        raise ValueError(
            f"{folder}: its provenance names {len(found)} tasks or kinds of prompts; the table needs one for each "
            "folder."
        )
    return found.pop()


def _printed(number: int) -> dict[tuple[str, str, int, str], float]:
    """The paper's numbers by data set, prompts, step and quantity."""
    rows = [(f"reduction {row.versus}", row, row.reduction_pct) for row in paper.reductions(number).itertuples()]
    if number == 1:
        rows += [(row.method, row, float(row.printed)) for row in paper.levels(1).itertuples()]
    # The paper's prompts are sticky (appendix, value-estimation MSE diagnostic).
    return {(row.dataset, "sticky", row.step, quantity): value for quantity, row, value in rows}
