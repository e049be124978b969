"""Tables of training runs: accuracies at the end, noise of the gradient, and errors of the value, as text cells."""

import numpy as np
import pandas as pd

from llm_experiments.training.collect import name_of
from paper_figures.training.results import Variant, label, plus_minus, rows_of, variants_of

FINAL_COLUMNS = {"greedy": "Greedy", "accuracy": "Sampled", "pass_at_samples": "pass@k", "average": "Average, sampled"}
COMPARED = ("greedy", "accuracy", "average")
REFERENCES = ("none", "grpo")
FINAL_CAPTION = (
    "End of training (mean of the last three tests after the first): accuracy in per cent with its standard error over "
    "seeds, and the difference from {reference}, paired by seed, with Student's 95 % interval; the average is that of "
    "all tests after the first, the gain that since the first."
)


def final_table(final: pd.DataFrame, differences: pd.DataFrame) -> pd.DataFrame:
    """Text cells: each variant's final accuracies, and their differences from that of `reference_of`.

    final, differences: ``final.csv`` and ``differences.csv`` of the results.
    """
    reference, rows = reference_of(final), []
    for variant in variants_of(final):
        values = rows_of(final, variant).set_index("outcome")
        row = {"Baseline": label(*variant)}
        for outcome, name in FINAL_COLUMNS.items():
            row[name] = plus_minus(100 * values.loc[outcome, "mean"], 100 * values.loc[outcome, "se"], ".1f", ".1f")
            if outcome in COMPARED:
                row[f"{name}, difference"] = _difference(differences, variant, reference, outcome)
        row["Gain, sampled"] = plus_minus(
            100 * values.loc["gain", "mean"], 100 * values.loc["gain", "se"], "+.1f", ".1f"
        )
        rows.append(row | {"Seeds": str(values["n_seeds"].iloc[0])})
    return pd.DataFrame(rows)


def reference_of(final: pd.DataFrame) -> Variant:
    """What the others are compared with: plain training without a baseline, else with GRPO, else the first."""
    variants = variants_of(final)
    plain = [(method, "none", "own", 1) for method in REFERENCES]
    return next((variant for variant in plain if variant in variants), variants[0])


def _difference(differences: pd.DataFrame, variant: Variant, reference: Variant, outcome: str) -> str:
    part = rows_of(differences, variant)
    chosen = part[(part["reference"] == name_of(*reference)) & (part["outcome"] == outcome)]
    if chosen.empty:
        return ""
    row = 100 * chosen[["difference", "ci_low", "ci_high"]].iloc[0]
    interval = "" if np.isnan(row["ci_low"]) else f" [{row['ci_low']:+.1f}, {row['ci_high']:+.1f}]"
    return f"{row['difference']:+.1f}{interval}"
