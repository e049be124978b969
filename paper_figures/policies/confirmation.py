"""A study's main contrasts by TRL's trainer beside the same runs of the study."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from llm_experiments.study.contrasts import POOLED, endpoints, speed

CAPTION = (
    "Mean matched accuracy over {budget:,} completions, and its difference from {reference}, paired run by "
    "run ({runs} runs of each design: {bases} with {seeds}), ± one standard error over the runs; and "
    "completions to {reference}'s final accuracy as a share of the budget, geometric mean over base models. By TRL's "
    "trainer, and by the study's on the same seeds."
)


def confirmation_table(
    confirmed: pd.DataFrame, curves: pd.DataFrame, budget: int, reference: str, names: Mapping[str, str]
) -> pd.DataFrame:
    """Designs that were trained by both, as text cells.

    Parameters
    ----------
    confirmed, curves : DataFrame
        Columns ``design, base`` and those of `llm_experiments.study.curves.CURVE_COLUMNS`. Designs that were not
        compared in the study are left out.
    budget : int
    reference : str
    names : mapping
        Design to what it is called.
    """
    confirmed = confirmed[confirmed["design"].isin(set(curves["design"]))]
    keys = ["design", "base", "seed"]
    same = curves.merge(confirmed[keys].drop_duplicates(), on=keys)
    rows: dict[str, dict[str, str]] = {}
    for trainer, runs in (("TRL", confirmed), ("the study", same)):
        values = (
            endpoints(runs, budget)["area"]
            .reset_index()
            .pivot_table(index=["base", "seed"], columns="design", values="area", sort=False)
        )
        speeds = speed(runs, budget, dict.fromkeys(runs["base"].unique().tolist(), reference))
        pooled = speeds[(speeds["base"].astype(str) == POOLED) & (speeds["fraction"] == 1)]
        ratios = pooled.set_index("design")["ratio"]
        for design in values:
            gap = values[design] - values[reference]
            row = rows.setdefault(str(design), {"Design": names[str(design)]})
            row[f"Mean accuracy, {trainer}"] = f"{values[design].mean():.3f}"
            row[f"less {names[reference]}, {trainer}"] = (
                "" if design == reference else f"{gap.mean():+.3f} ± {gap.sem():.3f}"
            )
            row[f"Completions, {trainer}"] = "> 1" if np.isinf(ratios[design]) else f"{ratios[design]:.2f}"
    return pd.DataFrame(list(rows.values()))
