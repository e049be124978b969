"""Result tables of training runs, and how their variants are named and drawn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kaestat.core.result_tables import table_file
from paper_figures.shared.charts import BLACK, BLUE, GREEN, GREY, LABELS, ORANGE, PURPLE, SKY, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VARIANT = ["method", "weights", "scale", "reuse"]
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
    "pooled": BLACK,
}
WEIGHTING = {"score_norm": ", weighted by score norm", "length": ", weighted by length"}
SCALING = {"none": ", unscaled", "group_std": ", over group std", "batch_std": ", whitened"}

Variant = tuple[str, str, str, int]


def read_results(folder: str | os.PathLike, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Tables of a results folder by name.

    Raises FileNotFoundError if the folder lacks one of them.
    """
    paths = {name: table_file(Path(folder) / f"{name}.csv") for name in names}
    missing = [name for name, path in paths.items() if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder}: lacks {', '.join(missing)} (.csv); name results/training/NAME of tested runs."
        )
    # "none" is the name of a method and of a weighting, not a missing value.
    return {name: pd.read_csv(path, keep_default_na=False, na_values=[""]) for name, path in paths.items()}


def variants_of(frame: pd.DataFrame) -> list[Variant]:
    """The variants of a table, in the order in which they come."""
    return list(frame.groupby(VARIANT, sort=False).groups)


def rows_of(frame: pd.DataFrame, variant: Variant) -> pd.DataFrame:
    """A variant's part of a table."""
    return frame[(frame[VARIANT] == list(variant)).all(axis=1)]


def label(method: str, weights: str, scale: str, reuse: int) -> str:
    """A variant's name for readers."""
    plain = method_label(method) + WEIGHTING.get(weights, "") + SCALING.get(scale, "")
    return plain + (f", J = {reuse}" if reuse > 1 else "")


def method_label(method: str) -> str:
    """A method's name for readers, with its parameters."""
    name, _, given = method.partition(":")
    return LABELS.get(name, name) + (f" ({given.replace('=', ' ')})" if given else "")


def plus_minus(mean: float, se: float, mean_format: str, se_format: str) -> str:
    """A mean with its standard error, or alone where a single seed gives none."""
    return f"{mean:{mean_format}}" + ("" if np.isnan(se) else f" ± {se:{se_format}}")


def line_style(variant: Variant) -> dict[str, object]:
    """Colour by method; dashed with weights, dotted with reuse."""
    method, weights, _, reuse = variant
    line = "dotted" if reuse > 1 else "dashed" if weights != "none" else "solid"
    return {"color": COLORS.get(method.partition(":")[0], GREY), "linestyle": line}


def draw_means(axes: Axes, frame: pd.DataFrame, column: str, variants: Sequence[Variant]) -> None:
    """A line for each variant: the mean over seeds against the step, with a band of one standard error over seeds."""
    for variant in variants:
        by_step = rows_of(frame, variant).groupby("step")[column]
        mean, se = by_step.mean(), by_step.std(ddof=1) / np.sqrt(by_step.count())
        style = line_style(variant)
        axes.plot(mean.index, mean, linewidth=1.6, **style)
        axes.fill_between(mean.index, mean - se, mean + se, color=style["color"], alpha=0.15, linewidth=0)
