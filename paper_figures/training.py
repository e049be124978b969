"""``python -m paper_figures.training results/training/NAME``: curves and final comparisons of training runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pandas as pd

try:
    import typer

    from kaestat.plots import STYLE
    from paper_figures.charts import BLUE, GREEN, GREY, LABELS, ORANGE, PURPLE, SKY, VERMILION, line_key
    from paper_figures.output import write_figure, write_table
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; tables and figures need: pip install -e '.[simulations]'")

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VARIANT = ["method", "weights", "reuse"]
COLORS = {
    "kae": BLUE,
    "kae_stream": BLUE,
    "kae_eb": GREEN,
    "grpo": VERMILION,
    "dr_grpo": ORANGE,
    "gpg": SKY,
    "reinforce++": GREY,
    "spo": ORANGE,
    "none": PURPLE,
    "pooled": "#000000",
}
# What is drawn of the tests and of the training curve, and its axis.
TEST_PANELS = {"greedy": "Test accuracy, greedy", "accuracy": "Test accuracy, sampled"}
CURVE_PANELS = {"mean_reward": "Training reward", "entropy": "Entropy (nats)"}
WEIGHTING = {"score_norm": ", weighted by score norm", "length": ", weighted by length"}
CAPTION = (
    "End of training (mean of the last three tests): accuracy in per cent with its standard error over seeds, and the "
    "difference from no baseline, paired by seed, with Student's 95 % interval."
)


def label(method: str, weights: str, reuse: int) -> str:
    """A variant's name for readers."""
    name, _, given = method.partition(":")
    plain = LABELS.get(name, name) + (f" ({given.replace('=', ' ')})" if given else "")
    return plain + WEIGHTING.get(weights, "") + (f", J = {reuse}" if reuse > 1 else "")


def curves(tests: pd.DataFrame, training: pd.DataFrame) -> Figure:
    """Four panels against the training step: greedy and sampled test accuracy, training reward, entropy.

    Lines are means over seeds, bands one standard error over seeds to either side.

    Parameters
    ----------
    tests, training : DataFrame
        ``tests.csv`` and ``curves.csv`` of the results.
    """
    import matplotlib
    from matplotlib.figure import Figure

    variants = list(tests.groupby(VARIANT, sort=False).groups)
    styles = {variant: _style(variant) for variant in variants}
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(9.2, 6.4 + 0.22 * -(-len(variants) // 2)), layout="constrained")
        panels = drawing.subplots(2, 2, sharex=True)
        for axes, (column, name) in zip(panels[0], TEST_PANELS.items(), strict=True):
            _panel(axes, tests, column, name, styles)
        for axes, (column, name) in zip(panels[1], CURVE_PANELS.items(), strict=True):
            _panel(axes, training, column, name, styles)
            axes.set_xlabel("Training step")
        keys = [line_key(label(*variant), **style) for variant, style in styles.items()]
        drawing.legend(handles=keys, loc="outside lower center", ncols=2, frameon=False)
    return drawing


def final_table(final: pd.DataFrame, differences: pd.DataFrame) -> pd.DataFrame:
    """Text cells: each variant's final accuracies, and what no baseline lacks of them.

    Parameters
    ----------
    final, differences : DataFrame
        ``final.csv`` and ``differences.csv`` of the results.
    """
    rows = []
    for variant, part in final.groupby(VARIANT, sort=False):
        values = part.set_index("outcome")
        row = {"Baseline": label(*variant)}
        for outcome, name in (("greedy", "Greedy"), ("accuracy", "Sampled")):
            row[name] = f"{100 * values.loc[outcome, 'mean']:.1f} ± {100 * values.loc[outcome, 'se']:.1f}"
            row[f"{name} - none"] = _difference(differences, variant, outcome)
        rows.append(row | {"Seeds": str(values["n_seeds"].iloc[0])})
    return pd.DataFrame(rows)


def build(folder: str | os.PathLike) -> None:
    """Write ``figures/training_curves`` and ``tables/training_final`` below a results folder.

    Raises
    ------
    FileNotFoundError
        If the folder holds no results of training runs with tests.
    """
    folder = Path(folder)
    missing = [name for name in ("tests", "curves", "final", "differences") if not (folder / f"{name}.csv").is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder}: lacks {', '.join(missing)} (.csv); name results/training/NAME of tested runs."
        )
    tests, training, final, differences = (
        pd.read_csv(folder / f"{name}.csv", keep_default_na=False, na_values=[""])
        for name in ("tests", "curves", "final", "differences")
    )
    write_figure(curves(tests, training), folder, "training_curves")
    write_table(final_table(final, differences), folder, "training_final", CAPTION)


def main(folder: Annotated[Path, typer.Argument(help="Results folder of an experiment.")]) -> None:
    """Build the figure and the table of training runs."""
    try:
        build(folder)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"Tables and figures: {folder.resolve()}")


def _panel(axes: Axes, frame: pd.DataFrame, column: str, name: str, styles: dict[tuple, dict]) -> None:
    for variant, style in styles.items():
        part = frame[(frame[VARIANT] == list(variant)).all(axis=1)]
        by_step = part.groupby("step")[column]
        mean, se = by_step.mean(), by_step.std(ddof=1) / np.sqrt(by_step.count())
        axes.plot(mean.index, mean, linewidth=1.6, **style)
        axes.fill_between(mean.index, mean - se, mean + se, color=style["color"], alpha=0.15, linewidth=0)
    axes.set_ylabel(name)


def _style(variant: tuple[str, str, int]) -> dict[str, object]:
    """Colour by method; dashed with weights, dotted with reuse."""
    method, weights, reuse = variant
    line = "dotted" if reuse > 1 else "dashed" if weights != "none" else "solid"
    return {"color": COLORS.get(method.partition(":")[0], GREY), "linestyle": line}


def _difference(differences: pd.DataFrame, variant: tuple, outcome: str) -> str:
    chosen = differences[
        (differences[VARIANT] == list(variant)).all(axis=1)
        & (differences["reference"] == "none")
        & (differences["outcome"] == outcome)
    ]
    if chosen.empty:
        return ""
    row = 100 * chosen[["difference", "ci_low", "ci_high"]].iloc[0]
    return f"{row['difference']:+.1f} [{row['ci_low']:+.1f}, {row['ci_high']:+.1f}]"


if __name__ == "__main__":
    typer.run(main)
