"""``python -m paper_figures.training results/training/NAME``: figures and tables of an experiment's training runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pandas as pd
from scipy.stats import t as student

try:
    import typer

    from kaestat.report.plots import STYLE
    from paper_figures.charts import line_key
    from paper_figures.output import write_figure, write_table
    from paper_figures.training_results import (
        VARIANT,
        Variant,
        draw_means,
        label,
        line_style,
        method_label,
        plus_minus,
        read_results,
        rows_of,
        variants_of,
    )
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; tables and figures need: pip install -e '.[simulations]'")

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What is drawn of the tests and of the training curve, and its axis.
TEST_PANELS = {"greedy": "Test accuracy, greedy", "accuracy": "Test accuracy, sampled"}
CURVE_PANELS = {"mean_reward": "Training reward", "entropy": "Entropy (nats)"}
FINAL_COLUMNS = {"greedy": "Greedy", "accuracy": "Sampled", "pass_at_samples": "pass@k", "average": "Average, sampled"}
COMPARED = ("greedy", "accuracy", "average")
ACCURACY_TICKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
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


def curves(tests: pd.DataFrame, training: pd.DataFrame) -> Figure:
    """Four panels against the training step: greedy and sampled test accuracy, training reward, entropy.

    Lines are means over seeds, bands one standard error over seeds to either side.

    Parameters
    ----------
    tests, training : DataFrame
        ``tests.csv`` and ``curves.csv`` of the results.
    """
    rows = [[(tests, *panel) for panel in TEST_PANELS.items()], [(training, *panel) for panel in CURVE_PANELS.items()]]
    return panels(rows, variants_of(tests))


def errors(gradients: pd.DataFrame, values: pd.DataFrame) -> Figure:
    """Two panels against the training step: the gradient's noise over its signal, and the value error.

    Parameters
    ----------
    gradients, values : DataFrame
        ``gradients.csv`` and ``values.csv`` of the results. A ratio whose signal is within two standard errors of 0 is
        left out. Of the values, each run's own baseline is drawn, in the middle of each part of the run.
    """
    noise = [
        {
            **dict(zip(VARIANT, variant, strict=True)),
            "step": step,
            "ratio": ratio(at["gradient_mse"], at["gradient_signal"])[0]
            if _is_clear(at["gradient_signal"])
            else np.nan,
        }
        for variant in variants_of(gradients)
        for step, at in rows_of(gradients, variant).groupby("step")
    ]
    own = values[(values["baseline"] == values["method"]) & (values["method"] != "none")]  # which estimates no value
    own = own.assign(step=(own["from_step"] + own["to_step"]) / 2)
    column, name = value_column(values)
    row = [(pd.DataFrame(noise), "ratio", "Gradient MSE over signal"), (own, column, name)]
    drawing = panels([row], variants_of(gradients))
    drawing.axes[0].set_yscale("log")  # a signal near 0 at the first step would hide all else
    return drawing


def panels(rows: Sequence[Sequence[tuple[pd.DataFrame, str, str]]], variants: Sequence[Variant]) -> Figure:
    """A grid of panels against the training step under one legend.

    Parameters
    ----------
    rows : sequence of sequences
        Each panel's table, column, and name of its axis.
    variants : sequence of tuple
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        height = 3.2 * len(rows) + 0.22 * -(-len(variants) // 2)
        drawing = Figure(figsize=(9.2, height), layout="constrained")
        grid = drawing.subplots(len(rows), len(rows[0]), sharex=True, squeeze=False)
        for axes_row, row in zip(grid, rows, strict=True):
            for axes, (frame, column, name) in zip(axes_row, row, strict=True):
                draw_means(axes, frame, column, variants)
                if column in TEST_PANELS:
                    _spread_near_one(axes)
                axes.set_ylabel(name)
        for axes in grid[-1]:
            axes.set_xlabel("Training step")
        keys = [line_key(label(*variant), **line_style(variant)) for variant in variants]
        drawing.legend(handles=keys, loc="outside lower center", ncols=2, frameon=False)
    return drawing


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
    variants = variants_of(gradients)
    reference = _first_of(UNSCALED_REFERENCES, variants)
    rows = []
    for variant in variants:
        if variant != reference:
            paired = logs.loc[variant] - logs.loc[reference]
            cells = {f"Step {step}": _multiple(paired[step]) for step in paired}
            rows.append({"Baseline": label(*variant)} | cells)
    return pd.DataFrame(rows)


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


def build(folder: str | os.PathLike) -> None:
    """Write the figures and tables ``training_*`` below a results folder.

    Raises
    ------
    FileNotFoundError
        If the folder holds no results of training runs with tests.
    """
    found = read_results(folder, ("tests", "curves", "final", "differences", "values"))
    write_figure(curves(found["tests"], found["curves"]), folder, "training_curves")
    caption = FINAL_CAPTION.format(reference=label(*reference_of(found["final"])))
    write_table(final_table(found["final"], found["differences"]), folder, "training_final", caption)
    if len(found["values"]):
        write_table(value_table(found["values"]), folder, "training_values", VALUE_CAPTION)
    if (Path(folder) / "gradients.csv").is_file():
        gradients = read_results(folder, ["gradients"])["gradients"]
        write_table(noise_table(gradients), folder, "training_noise", NOISE_CAPTION)
        if len(variants_of(gradients)) > 1 and len(set(gradients["seed"])) > 1:
            reference = label(*_first_of(UNSCALED_REFERENCES, variants_of(gradients)))
            caption = NOISE_DIFFERENCE_CAPTION.format(reference=reference)
            write_table(noise_difference_table(gradients), folder, "training_noise_differences", caption)
        if len(found["values"]):
            write_figure(errors(gradients, found["values"]), folder, "training_errors")


def main(folder: Annotated[Path, typer.Argument(help="Results folder of an experiment.")]) -> None:
    """Build the figure and the tables of training runs."""
    try:
        build(folder)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"Tables and figures: {folder.resolve()}")


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


def _spread_near_one(axes: Axes) -> None:
    """Log odds on an axis of accuracies that go from below 0.8 to above 0.9."""
    low, high = axes.get_ylim()
    if low < 0.8 and high > 0.9:
        axes.set_yscale("logit", nonpositive="clip")
        axes.set_ylim(max(low, 0.01), min(high, 0.999))
        axes.set_yticks(ACCURACY_TICKS, map(str, ACCURACY_TICKS))
        axes.set_ylim(max(low, 0.01), min(high, 0.999))  # ticks widen it
        axes.minorticks_off()


def _is_clear(signal: pd.Series) -> bool:
    return len(signal) < 2 or signal.mean() > 2 * signal.std(ddof=1) / np.sqrt(len(signal))


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
    from kaestat.registry import get_method

    method = get_method(variant[0].partition(":")[0])
    return variant[2] == "none" or (variant[2] == "own" and method.scale == "none" and not method.rescales_informative)


def _with_se(mean: float, se: float) -> str:
    return "" if np.isnan(mean) else plus_minus(mean, se, ".3g", ".2g")


if __name__ == "__main__":
    typer.run(main)
