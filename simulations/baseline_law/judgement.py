"""Predicted against measured: what the comparison found in each cell, and whether the law foresaw it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from scipy.stats import t as student

from simulations.baseline_law.cells import Cell
from simulations.baseline_law.endpoints import LEVEL, PRIMARY, SHARES, completions_ratio, over_bases, student_mean

WITHIN, LEAST_CORRELATION, LEAST_DESIGNS = 1.3, 0.8, 6
COMPARED = (
    "none",
    "none_signed",
    "batch_mean",
    "value",
    "weighted_batch_mean",
    "weighted_constant",
    "weighted_history",
)


def reference_of(cell: Cell, tuning: pd.DataFrame) -> str:
    """The group design of the largest mean accuracy, each base at its best rate, in the tuning runs."""
    best = tuning.groupby(["design", "base"])["area"].max().groupby("design").mean()
    return str(best[list(cell.group_designs)].idxmax())


def logs_of(cell: Cell, runs: pd.DataFrame, reference: str, share: float = PRIMARY) -> pd.DataFrame:
    """Log ratio of completions on each base (index) of each design (columns), from the curves averaged over seeds."""
    checks = cell.budget.checks() * cell.batch
    curves = runs.groupby(["design", "base"])[[str(check) for check in checks]].mean()
    found = {
        design: [
            np.log(
                completions_ratio(
                    curves.loc[(design, base)].to_numpy(), curves.loc[(reference, base)].to_numpy(), checks, share
                )
            )
            for base in sorted(runs["base"].unique())
        ]
        for design in cell.designs
    }
    return pd.DataFrame(found)


def measured(cell: Cell, runs: pd.DataFrame, tuning: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """One row for each design: mean accuracy, and completions at each share with Student's interval over bases.

    Parameters
    ----------
    cell : Cell
    runs, tuning : DataFrame
        From `simulations.baseline_law.study`.
    predicted : DataFrame
        From `simulations.baseline_law.prediction.predictions`.
    """
    reference = reference_of(cell, tuning)
    law = predicted.set_index("design")["completions"]
    areas = runs.pivot_table(index="base", columns="design", values="area")
    rows = []
    logs = {share: logs_of(cell, runs, reference, share) for share in SHARES}
    for design in cell.designs:
        mean, error = student_mean(areas[design].to_numpy())
        row = {
            "cell": cell.name,
            "design": design,
            "reference": reference,
            "area": mean,
            "area_se": error,
            "predicted": law[design] / law[reference],
        }
        for share in SHARES:
            ratio, low, high = over_bases(logs[share][design].to_numpy())
            name = "completions" if share == PRIMARY else f"completions_at_{100 * share:.0f}"
            row |= {name: ratio, f"{name}_low": low, f"{name}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


def rank_correlation(predicted: pd.Series, found: pd.Series) -> float:
    """Spearman's; infinite ratios rank last, together."""
    finite = found.replace(np.inf, 1e9)
    return float(spearmanr(predicted, finite[predicted.index]).statistic)


def agreement(predicted: pd.Series, found: pd.Series, reference: str) -> dict[str, float]:
    """``rank_correlation, within_factor, median_factor, slope`` of measured on predicted completions, by design.

    The reference, which is 1 in both, counts in the rank correlation alone; ratios without end count in the slope not
    at all.
    """
    law, others = predicted[found.index].drop(reference), found.drop(reference)
    off = np.abs(np.log(others / law))
    reached = np.isfinite(others)
    return {
        "rank_correlation": rank_correlation(predicted[found.index], found),
        "within_factor": int((off <= np.log(WITHIN)).sum()),
        "median_factor": float(np.exp(off.median())),
        "slope": float(np.polyfit(np.log(law[reached]), np.log(others[reached]), 1)[0]),
    }


def verdict(cell: Cell, runs: pd.DataFrame, table: pd.DataFrame) -> dict[str, object]:
    """The rule in one cell; the error of the rank correlation is from leaving each base out (jackknife)."""
    own = table.set_index("design")
    reference = str(own["reference"].iloc[0])
    logs = logs_of(cell, runs, reference)
    found = agreement(own["predicted"], own["completions"], reference)
    left = np.array(
        [
            rank_correlation(own["predicted"], pd.Series({d: over_bases(logs[d].drop(base))[0] for d in logs}))
            for base in logs.index
        ]
    )
    n = len(left)
    error = float(np.sqrt((n - 1) / n * ((left - left.mean()) ** 2).sum()))
    return {
        "cell": cell.name,
        "held_out": cell.held_out,
        "designs": len(own),
        "reference": reference,
        **found,
        "rank_se": error,
        **{
            f"rank_correlation_at_{100 * share:.0f}": rank_correlation(
                own["predicted"], own[f"completions_at_{100 * share:.0f}"]
            )
            for share in SHARES
            if share != PRIMARY
        },
        "rule": found["rank_correlation"] >= LEAST_CORRELATION and found["within_factor"] >= LEAST_DESIGNS,
    }


def of_fault(table: pd.DataFrame, plain: pd.Series) -> dict[str, float]:
    """The same two measures of agreement for predictions from inputs in plain units.

    Parameters
    ----------
    table : DataFrame
        From `measured`.
    plain : Series
        Predicted completions, by design.
    """
    own = table.set_index("design")
    reference = str(own["reference"].iloc[0])
    found = agreement(plain / plain[reference], own["completions"], reference)
    return {f"plain_{name}": found[name] for name in ("rank_correlation", "median_factor")}


def contrasts(cell: Cell, runs: pd.DataFrame) -> pd.DataFrame:
    """``cell, design, other, difference, half, p`` of `COMPARED`, each against each."""
    pairs = [(one, other) for one in COMPARED for other in COMPARED if one != other]
    rows = [(cell.name, *pair, *paired(runs, *pair)) for pair in pairs]
    return pd.DataFrame(rows, columns=["cell", "design", "other", "difference", "half", "p"])


def paired(runs: pd.DataFrame, design: str, other: str) -> tuple[float, float, float]:
    """Difference of mean accuracies, its Student interval's half width and two-sided p, over bases."""
    areas = runs.pivot_table(index="base", columns="design", values="area")
    mean, error = student_mean((areas[design] - areas[other]).to_numpy())
    freedom = len(areas) - 1
    return mean, error * float(student.ppf((1 + LEVEL) / 2, freedom)), float(2 * student.sf(abs(mean) / error, freedom))
