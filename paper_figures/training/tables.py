"""Tables of training runs: accuracies at the end, noise of the gradient, and errors of the value, as text cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import t as student

from kaestat.baselines.registry import get_method
from paper_figures.training.results import VARIANT, Variant, label, method_label, plus_minus, rows_of, variants_of

FINAL_COLUMNS = {"greedy": "Greedy", "accuracy": "Sampled", "pass_at_samples": "pass@k", "average": "Average, sampled"}
COMPARED = ("greedy", "accuracy", "average")
REFERENCES = ("none", "grpo")
UNSCALED_REFERENCES = ("none", "dr_grpo")
FINAL_CAPTION = (
    "End of training (mean of the last three tests after the first): accuracy in per cent with its standard error over "
    "seeds, and the difference from {reference}, paired by seed, with Student's 95 % interval; the average is that of "
    "all tests after the first, the gain that since the first."
)
NOISE_CAPTION = (
    "Gradient of one minibatch along the runs: its mean squared error over the squared norm of what it estimates (means"
    " of both over measurements and seeds, delta-method standard error over measurements), and the gradient MSE over "
    "that of the baseline named, for all whose advantages are not scaled (error of the row alone). First step: one "
    "policy per seed; later each baseline has its own."
)
NOISE_DIFFERENCE_CAPTION = (
    "Gradient MSE over signal as a multiple of that of {reference} at the same step, paired by seed, with Student's "
    "95 % interval over seeds, taken of the logarithm. Empty where a seed's signal is not above 0."
)
VALUE_CAPTION = (
    "Value MSE (x 0.001, standard error over runs) of each baseline on the rewards of all runs of the experiment, over "
    "the last three quarters of each run; with one completion per prompt, less that of the batch mean."
)


def final_table(final: pd.DataFrame, differences: pd.DataFrame) -> pd.DataFrame:
    """Text cells: each variant's final accuracies, and their differences from that of `reference_of`.

    Parameters
    ----------
    final, differences : DataFrame
        ``final.csv`` and ``differences.csv`` of the results.
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
    """What the others are compared with: no baseline where it was run, else GRPO, else the first."""
    return _first_of(REFERENCES, variants_of(final))


def noise_table(gradients: pd.DataFrame) -> pd.DataFrame:
    """Text cells: each variant's gradient noise, at the first step and over all later ones.

    Parameters
    ----------
    gradients : DataFrame
        ``gradients.csv`` of the results.
    """
    first, later = gradients[gradients["step"] == 0], gradients[gradients["step"] > 0]
    unscaled, rows = list(filter(_unscaled, variants_of(gradients))), []
    reference = _first_of(UNSCALED_REFERENCES, unscaled) if unscaled else None
    for variant in variants_of(gradients):
        row = {"Baseline": label(*variant)}
        for name, part in (("first step", first), ("later", later)):
            own = rows_of(part, variant)
            row[f"MSE / signal, {name}"] = _with_se(*ratio(own["gradient_mse"], own["gradient_signal"]))
            if reference is not None:
                unit = rows_of(part, reference)["gradient_mse"].mean()
                mean, se = own["gradient_mse"].mean(), own["gradient_mse"].std(ddof=1) / np.sqrt(len(own))
                text = _with_se(mean / unit, se / unit) if _unscaled(variant) else ""
                row[f"MSE / {label(*reference)}'s, {name}"] = text
        rows.append(row | {"Measurements": str(len(rows_of(gradients, variant)))})
    return pd.DataFrame(rows)


def noise_difference_table(gradients: pd.DataFrame) -> pd.DataFrame:
    """Text cells: by step, how many times as much noise over signal each variant's gradient has as the reference's.

    Parameters
    ----------
    gradients : DataFrame
        ``gradients.csv`` of the results, of two seeds or more.
    """
    signal = gradients["gradient_signal"].where(gradients["gradient_signal"] > 0)
    logs = gradients.assign(log=np.log(gradients["gradient_mse"] / signal))
    logs = logs.pivot_table(index=[*VARIANT, "seed"], columns="step", values="log", dropna=False)
    reference, rows = noise_reference_of(gradients), []
    for variant in variants_of(gradients):
        if variant != reference:
            paired = logs.loc[variant] - logs.loc[reference]
            cells = {f"Step {step}": _multiple(paired[step]) for step in paired}
            rows.append({"Baseline": label(*variant)} | cells)
    return pd.DataFrame(rows)


def noise_reference_of(gradients: pd.DataFrame) -> Variant:
    """What the others' noise is compared with: no baseline where it was run, else Dr. GRPO, else the first."""
    return _first_of(UNSCALED_REFERENCES, variants_of(gradients))


def ratio(above: pd.Series, below: pd.Series) -> tuple[float, float]:
    """Ratio of two paired means, with its delta-method standard error; NaN where the denominator is not above 0."""
    mean = below.mean()
    if not mean > 0:
        return np.nan, np.nan
    found = above.mean() / mean
    residual = above - found * below
    return found, residual.std(ddof=1) / np.sqrt(len(above)) / mean if len(above) > 1 else np.nan


def value_table(values: pd.DataFrame) -> pd.DataFrame:
    """Text cells: each baseline's value error on the rewards of all runs.

    Parameters
    ----------
    values : DataFrame
        ``values.csv`` of the results.
    """
    known = values[values["from_step"] > 0]
    column, name = value_column(values)
    per_run = known.groupby([*VARIANT, "seed", "baseline"], sort=False)[column].mean().reset_index()
    rows = []
    for baseline, part in per_run.groupby("baseline", sort=False):
        mean, se = 1000 * part[column].mean(), 1000 * part[column].std(ddof=1) / np.sqrt(len(part))
        text = "not identified" if np.isnan(mean) else _with_se(mean, se)
        rows.append({"Baseline": method_label(baseline), name: text, "Runs": str(len(part))})
    return pd.DataFrame(rows)


def value_column(values: pd.DataFrame) -> tuple[str, str]:
    """The column of ``values.csv`` that the runs identify, and its name."""
    if values["mse"].notna().any():
        return "mse", "Value MSE"
    return "less_reference", "Value MSE less the batch mean's"


def _multiple(differences: pd.Series) -> str:
    """Of paired differences of logarithms, the mean and its interval, as factors."""
    if differences.isna().any():
        return ""
    mean, n = differences.mean(), len(differences)
    reach = student.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n)
    middle, low, high = (
        f"{each:.2g}" if each < 99.5 else f"{each:,.0f}" for each in np.exp([mean, mean - reach, mean + reach])
    )
    return f"{middle} [{low}, {high}]"


def _first_of(methods: Sequence[str], known: Sequence[Variant]) -> Variant:
    """The first of these methods that was run plainly, else the first variant."""
    plain = [(method, "none", "own", 1) for method in methods]
    return next((variant for variant in plain if variant in known), known[0])


def _difference(differences: pd.DataFrame, variant: Variant, reference: Variant, outcome: str) -> str:
    part = rows_of(differences, variant)
    chosen = part[(part["reference"] == reference[0]) & (part["outcome"] == outcome)]
    if chosen.empty:
        return ""
    row = 100 * chosen[["difference", "ci_low", "ci_high"]].iloc[0]
    interval = "" if np.isnan(row["ci_low"]) else f" [{row['ci_low']:+.1f}, {row['ci_high']:+.1f}]"
    return f"{row['difference']:+.1f}{interval}"


def _unscaled(variant: Variant) -> bool:
    """Whether advantages are rewards less values, so that gradients of such variants are of one size."""
    method = get_method(variant[0].partition(":")[0])
    return variant[2] == "none" or (variant[2] == "own" and method.scale == "none")


def _with_se(mean: float, se: float) -> str:
    return "" if np.isnan(mean) else plus_minus(mean, se, ".3g", ".2g")
