"""The table that holds what `kaestat analyze` advised against what a study measured, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from llm_experiments.study.contrasts import student

METRIC = "adam"  # norms in the units in which the studies' optimiser takes its steps
CAPTION = (
    "Advice of `kaestat analyze` on one run of each design and base model, with squared norms in Adam's units of "
    "{completions} completions, against what the study measured. ρ weighs all wrong against all right completions; "
    "no baseline leaves less noise than the value from the ρ in brackets on. Saved: share of the noise that a weighted "
    "history takes off the weighted batch mean in a replay; law: the ratio of their noise that the law predicts; each "
    "with its 95 % interval. Learnt more: mean accuracy over the budget of {recommended} less that of {without}, ± one "
    "standard error over {seeds}, in the last rows over {bases} with Student's interval. Right: that a history pays, "
    "by the sign of the difference, and open where it does not differ significantly from 0; that it is not "
    "shown to pay, unless the difference is above 0. Order: rank correlation of predicted noise and measured "
    "accuracy of {designs} designs, where between/within is 0 and .2, in the last rows ± one standard error over base "
    "models. The norms of a run took {share:.1f} times the processor time of its share of its stack's steps; all steps "
    "have them."
)


def advice_table(advice: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Advice and what was measured, one row for each base model and run, then one for all base models of each design.

    Parameters
    ----------
    advice : DataFrame
        Columns `llm_experiments.study.advice.ADVICE_COLUMNS`.
    names : mapping
        Design to what it is called.
    """
    own = advice[advice["metric"] == METRIC]
    rows, last, row = [], [], Any
    for log, part in own.groupby("log", sort=False):
        for row in part.itertuples():
            rows.append(
                {
                    "Run of": names[str(log)],
                    "Base model": str(row.base),
                    "ρ": f"{row.rho:.1f} ({row.threshold:.1f})",
                    "Saved": _interval(row.saved, row.saved_low, row.saved_high),
                    "Law": _interval(row.predicted, row.predicted_low, row.predicted_high),
                    "A history": row.advice,
                    "Learnt more": f"{row.gap:+.3f} ± {row.gap_se:.3f}",
                    "Right?": row.right,
                    "Order, 0": f"{row.correlation:.2f}",
                    "Order, .2": f"{row.correlation_between:.2f}",
                }
            )
        if len(part) > 1:
            last.append(_all(names[str(log)], part))
    return pd.DataFrame([*rows, *last])


def _all(name: str, part: pd.DataFrame) -> dict[str, str]:
    gap, se, low, high, _ = student(part["gap"].to_numpy())
    counts = part["right"].value_counts()
    orders = [student(part[column].to_numpy())[:2] for column in ("correlation", "correlation_between")]
    return {
        "Run of": name,
        "Base model": "all",
        "ρ": "",
        "Saved": "",
        "Law": "",
        "A history": f"pays on {(part['advice'] == 'pays').sum()} of {len(part)}",
        "Learnt more": f"{gap:+.3f} ± {se:.3f} [{low:+.3f}, {high:+.3f}]",
        "Right?": ", ".join(f"{counts[answer]} {answer}" for answer in ("yes", "no", "open") if answer in counts),
        "Order, 0": "{:.3f} ± {:.3f}".format(*orders[0]),
        "Order, .2": "{:.3f} ± {:.3f}".format(*orders[1]),
    }


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"
