"""Why the law misses where it does: looks that were not in the plan, taken when six cells had been judged.

- *Rates for the target.* The plan chooses rates for the mean accuracy over the whole budget, not for the target. Here
  each design takes, on each base, the rate at which its tuning runs reach the target first; the target is what the
  reference reaches after half of the budget at its best rate for that. The same runs choose and measure, for all
  designs alike.
- *Inputs at the chosen rate.* The plan measures inputs on a path at a rate fixed in advance, often a quarter of the
  chosen one. Here the path of the true value has the rate that its tuning runs chose: the policy moves faster, so the
  history is staler and more prompts are solved.
- *Target at the end.* The accuracy that the reference has at the end of the budget, one of the plan's further
  endpoints: on the way up a constant rate sets the pace, and near the plateau the noise does. This look came last, when
  twelve cells had been judged.

Each corrects how the law is used and not its formula. The held-out cells are there to test them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from simulations.baseline_law.cells import Cell
from simulations.baseline_law.endpoints import PRIMARY, over_bases, steps_to
from simulations.baseline_law.judgement import agreement
from simulations.baseline_law.prediction import PATH_DESIGN, predictions


def looks(cell: Cell, table: pd.DataFrame, tuning: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
    """``cell, look, rank_correlation, within_factor, median_factor, slope`` as planned and after each look.

    Parameters
    ----------
    cell : Cell
    table : DataFrame
        From `simulations.baseline_law.judgement.measured`.
    tuning, rates : DataFrame
        From `simulations.baseline_law.study`: `tuned` and `chosen`.
    """
    own = table.set_index("design")
    reference = str(own["reference"].iloc[0])
    chosen = float(np.exp(np.log(rates[PATH_DESIGN]).mean()))
    law = predictions(replace(cell, path_rate=chosen)).set_index("design")["completions"]
    law = law / law[reference]
    quickest = at_their_quickest(cell, tuning, reference)
    found = {
        "planned": agreement(own["predicted"], own["completions"], reference),
        "rates for the target": agreement(own["predicted"], quickest, reference),
        "inputs at the chosen rate": agreement(law, own["completions"], reference),
        "target at the end": agreement(own["predicted"], own["completions_at_100"], reference),
        "the first two": agreement(law, quickest, reference),
    }
    return pd.DataFrame([{"cell": cell.name, "look": name} | row for name, row in found.items()])


def at_their_quickest(cell: Cell, tuning: pd.DataFrame, reference: str) -> pd.Series:
    """Completions to the target, of those of the reference, each design at its quickest rate on each base."""
    names = [name for name in tuning.columns if name.isdigit()]
    checks = np.array([float(name) for name in names])
    logs: dict[str, list[float]] = {design: [] for design in cell.designs}
    for _, on_base in tuning.groupby("base"):
        curves = {str(design): rows[names].to_numpy() for design, rows in on_base.groupby("design")}
        target = float(np.interp(PRIMARY * checks[-1], checks, curves[reference].max(axis=0)))
        needed = {design: min(steps_to(curve, checks, target) for curve in curves[design]) for design in cell.designs}
        for design in cell.designs:
            logs[design].append(float(np.log(needed[design] / needed[reference])))
    return pd.Series({design: over_bases(np.array(each))[0] for design, each in logs.items()})
