"""Tables 1 and 2 of a real language model: what `python -m llm_experiments diagnose` found, laid out as the paper's."""

import os
from collections.abc import Sequence

import numpy as np
import pandas as pd

from llm_experiments.diagnose.estimators import WEIGHTED_KAE_EB
from llm_experiments.diagnose.results import Results
from paper_figures.shared.charts import LABELS
from paper_figures.shared.output import write_table

PAPERS = ("reinforce++", "grpo", "kae")
FLOORS = ("oracle", "best_baseline")
COMPARED = ("none", "reinforce++", "grpo", "kae", "kae_eb", "reinforce++@exact", "grpo@exact", "kae@exact", *FLOORS)
WEIGHTING_LABELS = {"exact": "exact weights", "length": "length weights", "logit_norm": "logit-norm weights"}
VALUE_CAPTION = (
    "Value MSE (x 0.001; standard error over prompts). As in the paper, then debiased: free of the oracle pool's "
    "noise. Reductions by KAE in per cent, with 95 % bootstrap intervals over prompts."
)
GRADIENT_CAPTION = (
    "Gradient MSE (x {unit}; standard error over prompts). As in the paper, with the pool as the policy, then the "
    "debiased figure, which does not depend on the pool's size. Reductions by KAE in per cent, with 95 % bootstrap "
    "intervals over prompts."
)
WEIGHTED_CAPTION = (
    "Debiased gradient MSE of weighted KAE-EB less that of others (x {unit}), paired by prompt, with 95 % bootstrap "
    "intervals over prompts; below 0 it is the better one."
)


def label(method: str) -> str:
    """A method's name for readers: ``kae@exact`` is "KAE, exact weights"."""
    name, _, weighting = method.partition("@")
    plain = LABELS.get(name, name)
    return f"{plain}, {WEIGHTING_LABELS.get(weighting, weighting)}" if weighting else plain


def reductions(differences: pd.DataFrame, ratio: str = "ratio") -> pd.DataFrame:
    """KAE's reductions of the MSE in per cent.

    differences: Paired differences, every method against KAE.
    Returns: ``step, versus, reduction_pct, low, high``; 95 % intervals. An end is -inf if the data leave open how small
        the other method's MSE is, so the interval of the ratio reaches 0 or below.
    """
    against = differences[(differences["reference"] == "kae") & differences["method"].isin(PAPERS)]
    # Of theirs to ours: the ends change places.
    return pd.DataFrame(
        {
            "step": against["step"],
            "versus": against["method"],
            "reduction_pct": 100 * (1 - 1 / against[ratio]),
            "low": 100 * (1 - 1 / against[f"{ratio}_low"].clip(lower=0.0)),
            "high": 100 * (1 - 1 / against[f"{ratio}_high"].clip(lower=0.0)),
        }
    ).reset_index(drop=True)


def value_table(results: Results) -> pd.DataFrame:
    """The paper's Table 1 as readers see it: a column for each step."""
    frame, compared = results.value_mse, results.value_mse_differences
    rows = [(LABELS[name], _levels(frame, name, "mse", "se", 1e3)) for name in PAPERS]
    rows += [(f"{LABELS[name]}, debiased", _levels(frame, name, "mse_debiased", "se_debiased", 1e3)) for name in PAPERS]
    rows += _reduction_rows(compared, "ratio", "")
    rows += _reduction_rows(compared, "ratio_debiased", ", debiased")
    return _wide(rows, frame["step"].unique())


def gradient_table(results: Results) -> tuple[pd.DataFrame, str]:
    """The paper's Table 2 as readers see it, and its caption, which names the unit."""
    parts = {"": (results.gradient_mse, results.gradient_mse_differences)}
    if results.gradient_mse_debiased is not None:
        parts[", debiased"] = (results.gradient_mse_debiased, results.gradient_mse_debiased_differences)
    scale, unit = unit_of(results.gradient_mse)
    rows = [
        (f"{LABELS[name]}{kind}", _levels(frame, name, "mse", "se", scale))
        for kind, (frame, _) in parts.items()
        for name in PAPERS
    ]
    for kind, (_, compared) in parts.items():
        rows += _reduction_rows(compared, "ratio", kind)
    return _wide(rows, results.gradient_mse["step"].unique()), GRADIENT_CAPTION.format(unit=unit)


def weighted_table(differences: pd.DataFrame, scale: float) -> pd.DataFrame:
    """Weighted KAE-EB's error less that of `COMPARED`: a row for each, a column for each step.

    differences: Paired differences, every method against weighted KAE-EB among others.
    scale: Of the errors, as in `unit_of`.
    """
    against = differences[differences["reference"] == WEIGHTED_KAE_EB]
    rows = []
    for name in COMPARED:
        part = against[against["method"] == name].set_index("step")
        # Of the others to it: the ends change places.
        ends = -scale * part[["difference", "ci_high", "ci_low"]]
        text = [_differing(*each) for each in ends.itertuples(index=False)]
        if text:
            rows.append((label(name), pd.Series(text, index=part.index)))
    return _wide(rows, differences["step"].unique())


def unit_of(frame: pd.DataFrame) -> tuple[float, str]:
    """Factor that brings the MSEs to between 1 and 1000, a power of 1000, and its reciprocal as text."""
    middle = float(frame["mse"][frame["mse"] > 0].median())
    power = int(np.floor(np.log10(middle) / 3)) if np.isfinite(middle) else 0
    return 1000.0**-power, f"{1000.0**power:g}"


def write(results: Results, folder: str | os.PathLike) -> None:
    """Write ``tables/llm_*.{md,tex}`` of all that the results hold."""
    if results.value_mse is not None:
        write_table(value_table(results), folder, "llm_table1", VALUE_CAPTION)
    if results.gradient_mse is not None:
        shown, caption = gradient_table(results)
        write_table(shown, folder, "llm_table2", caption)
    compared = results.gradient_mse_debiased_differences
    if compared is not None and (compared["reference"] == WEIGHTED_KAE_EB).any():
        scale, unit = unit_of(results.gradient_mse_debiased)
        shown = weighted_table(compared, scale)
        write_table(shown, folder, "llm_weighted_kae_eb", WEIGHTED_CAPTION.format(unit=unit))


def _levels(frame: pd.DataFrame, method: str, mse: str, se: str, scale: float) -> pd.Series:
    """ "5.80 (0.31)" of each step: two digits of the error."""
    part = frame[frame["method"] == method].set_index("step")
    return pd.Series([_rounded(scale * row[mse], scale * row[se]) for _, row in part.iterrows()], index=part.index)


def _rounded(value: float, error: float) -> str:
    places = _places(error)
    return f"{value:.{places}f}" + (f" ({error:.{places}f})" if np.isfinite(error) else "")


def _differing(value: float, low: float, high: float) -> str:
    """ "-1.43 [-2.10, -0.80]": two digits of the interval's half."""
    places = _places((high - low) / 2)
    return f"{value:+.{places}f} [{low:+.{places}f}, {high:+.{places}f}]"


def _places(error: float) -> int:
    return int(np.clip(1 - np.floor(np.log10(error)), 0, 6)) if error > 0 else 3


def _reduction_rows(differences: pd.DataFrame, ratio: str, kind: str) -> list[tuple[str, pd.Series]]:
    found, rows = reductions(differences, ratio), []
    for versus in PAPERS[:2]:
        part = found[found["versus"] == versus].set_index("step")
        text = ["" if pd.isna(r.reduction_pct) else f"{r.reduction_pct:.1f}{_interval(r)}" for r in part.itertuples()]
        rows.append((f"Reduction vs. {LABELS[versus]}{kind} (%)", pd.Series(text, index=part.index)))
    return rows


def _interval(row) -> str:
    return "" if pd.isna(row.low) else f" [{row.low:.1f}, {row.high:.1f}]"


def _wide(rows: Sequence[tuple[str, pd.Series]], steps: Sequence[int]) -> pd.DataFrame:
    body = [[name, *(text.get(step, "") for step in steps)] for name, text in rows]
    return pd.DataFrame(body, columns=["", *(f"Step {step}" for step in steps)])
