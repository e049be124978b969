"""Does the noise of updates tell how fast designs learn? Figure and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kaestat.report.plots import STYLE
from llm_experiments.study.contrasts import POOLED
from llm_experiments.study.noise.measured import TRUTH
from llm_experiments.study.noise.summary import EVERYWHERE
from llm_experiments.training.stacked.config import Design
from paper_figures.policies.names import name_of
from paper_figures.policies.results import read_study
from paper_figures.policies.tables import KIND_NAMES
from paper_figures.shared.charts import BLUE, GREEN, GREY, ORANGE, VERMILION, line_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADS = {
    "value_error": "Value error",
    "noise": "Noise of the gradient",
    "adam_noise": "Noise in Adam's units",
    "answer_noise": "Noise in the answers",
    "push": "By their push",
}
DRAWN = ("value_error", "noise", "adam_noise", "push")
COLORS = {1: BLUE, 2: GREEN, 4: ORANGE, 8: VERMILION}  # by group size
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
NAME_PLACES = (((8, 6), "left"), ((14, -22), "center"), ((-12, 20), "right"))  # of reference, control and path
EDGE = 1.3  # where what is not reached is drawn
EFFECT_NAMES = {"mean": "Their mean", "cost": "Their noise"}
PER_THOUSAND = 1000.0
NOISE_CAPTION = (
    "Relative to {reference}, at policies of {path} after {places} completions: error of the values; noise of an "
    "update over its signal, at an equal number of completions, of the gradient, of the gradient in Adam's units and "
    "of what that does to held-out answers; and the completions that the same first-order gain on held-out answers "
    "takes at each design's own rate. Geometric means over places, with 95 % jackknife intervals over {paths} paths. "
    "'Measured' is what the study found."
)
CORRELATION_CAPTION = (
    "Rank correlation over designs with the completions that the study found them to need; 95 % intervals from a "
    "bootstrap over designs."
)
EFFECTS_CAPTION = (
    "What single updates do to held-out answers (sampled at temperature 1), in points of accuracy per 1,000 "
    "completions, each design at its own rate: what the mean of an update does, and what its noise costs. Means over "
    "places and {paths} paths, with standard errors over paths."
)
NORMS_CAPTION = (
    "Do right and wrong answers weigh alike? Mean squared norms of completions' scores in the parameters, at policies "
    "of {path} after {place} completions; the baseline of least noise that is the same for a whole kind is "
    "E[W R] / E[W]. Means over {paths} paths, with standard errors."
)
BASE_NORMS_CAPTION = (
    "Mean squared norms of completions' scores in the parameters, at the base models, four answers to each of the "
    "problems of a pool; the baseline of least noise that is the same for a whole kind is E[W R] / E[W]. Means over "
    "{units}."
)
KINDS = {"solved": "solved", "right_mode": "right mode", "wrong_mode": "wrong mode"}


def noise_names(names: Mapping[str, str]) -> dict[str, str]:
    """What designs are called, the true value's among them."""
    truth = Design.model_construct(method="oracle")  # the true value is given where noise is measured, not here
    return {**names, TRUTH: name_of(truth)}


def noise_table(ratios: pd.DataFrame, speed: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Designs in the order of the study, as text cells.

    Parameters
    ----------
    ratios : DataFrame
        From `llm_experiments.study.noise.summary`.
    speed : DataFrame
        Of the study, over all base models, indexed by design.
    names : mapping
        Of the designs, in their order.
    """
    pooled = ratios[ratios["generated"] == EVERYWHERE].set_index(["design", "quantity"])
    measured = set(ratios["design"])
    rows = []
    for design, name in names.items():
        if design in measured:
            cells = {head: _ratio(pooled.loc[(design, quantity)]) for quantity, head in HEADS.items()}
            if design == TRUTH:
                cells[HEADS["value_error"]] = "0"
            found = _ratio(speed.loc[design]) if design in speed.index else ""
            rows.append({"Design": name} | cells | {"Measured": found})
    return pd.DataFrame(rows)


def correlation_table(correlations: pd.DataFrame) -> pd.DataFrame:
    """As text cells."""
    return pd.DataFrame(
        [
            {
                "Quantity": HEADS[row.quantity],
                "Rank correlation": f"{row.correlation:.2f} [{row.low:.2f}, {row.high:.2f}]",
                "Designs": str(row.designs),
            }
            for row in correlations.itertuples()
        ]
    )


def effects_table(levels: pd.DataFrame, completions: int, names: Mapping[str, str]) -> pd.DataFrame:
    """Designs whose steps were taken, as text cells.

    Parameters
    ----------
    levels : DataFrame
        From `llm_experiments.study.noise.summary`.
    completions : int
        Of an update.
    names : mapping
    """
    pooled = levels[levels["generated"] == EVERYWHERE].set_index(["design", "quantity"])
    points = 100 * PER_THOUSAND / completions
    rows = []
    for design, name in names.items():
        if (design, "mean_solved") not in pooled.index:
            continue
        cells = {}
        for effect, head in EFFECT_NAMES.items():
            for kind, called in KINDS.items():
                own = pooled.loc[(design, f"{effect}_{kind}"), ["mean", "se"]] * points
                cells[f"{head}: {called}"] = f"{own['mean']:+.1f} ± {own['se']:.1f}"
        rows.append({"Design": name} | cells)
    return pd.DataFrame(rows)


def norms_table(norms: pd.DataFrame) -> pd.DataFrame:
    """Kinds of problems, as text cells, from the study's ``score_norms.csv``."""
    heads = {"value": "Value", "right": "Right answers", "wrong": "Wrong answers", "best_baseline": "Best baseline"}
    rows = []
    for kind, own in norms.groupby("kind", sort=False):
        cells = {}
        for column, head in heads.items():
            digits = 1 if column in ("right", "wrong") else 2
            known = own[column].dropna()
            error = f" ± {known.sem():.{digits}f}" if len(known) > 1 else ""
            cells[head] = f"{known.mean():.{digits}f}{error}" if len(known) else "none"
        rows.append({"Kind": KIND_NAMES[str(kind)]} | cells)
    return pd.DataFrame(rows)


def figure(folder: Path) -> Figure:
    """The figure of a study whose tables of noise have been built.

    Raises
    ------
    FileNotFoundError
        If they have not.
    """
    config, _, names = read_study(folder)
    ratios = pd.read_csv(folder / "noise_ratios.csv")
    speed = pd.read_csv(folder / "speed.csv", dtype={"base": str})
    speed = speed[(speed["base"] == POOLED) & (speed["fraction"] == 1)].set_index("design")
    measured = [name for name in names if name in set(ratios["design"])]
    sizes = {name: config.designs[name].group_size for name in measured}
    path = [] if config.noise is None else [config.noise.path]
    named = [name for name in dict.fromkeys([config.reference, *config.rivals, *path]) if name in sizes]
    return noise_and_speed(ratios, speed[["ratio", "low", "high"]], sizes, names, named)


def noise_and_speed(
    ratios: pd.DataFrame,
    speed: pd.DataFrame,
    sizes: Mapping[str, int],
    names: Mapping[str, str],
    named: Sequence[str],
) -> Figure:
    """One panel for each of `DRAWN`: completions that the study found against what the quantity says.

    Parameters
    ----------
    ratios, speed, names
        As for `noise_table`.
    sizes : mapping
        Group size of each design; a point each.
    named : sequence of str
        Designs whose names stand beside their points.
    """
    import matplotlib
    from matplotlib.figure import Figure

    pooled = ratios[ratios["generated"] == EVERYWHERE].set_index(["quantity", "design"])
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(10.5, 3.6), layout="constrained")
        every = drawing.subplots(1, len(DRAWN), sharey=True)
        for axes, quantity in zip(every, DRAWN, strict=True):
            _panel(axes, pooled.loc[quantity], speed, sizes, {each: names[each] for each in named})
            axes.set(xscale="log", yscale="log", xlabel=HEADS[quantity], ylim=(0.2, 1.5))
            low, high = axes.get_xlim()
            ticks = [each for each in TICKS if low <= each <= high]
            axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
            axes.set_xticks([], minor=True)
            if quantity != "value_error":
                ends = [max(low, 0.2), min(high, 1.5)]
                axes.plot(ends, ends, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
        every[0].set(ylabel="Completions it took", yticks=[0.2, 0.3, 0.5, 1.0], yticklabels=["0.2", "0.3", "0.5", "1"])
        every[0].minorticks_off()
        keys = [line_key(f"G = {size}", color=color) for size, color in COLORS.items() if size in sizes.values()]
        drawing.legend(handles=keys, frameon=False, loc="outside lower center", ncols=len(keys))
    return drawing


def _panel(
    axes: Axes, pooled: pd.DataFrame, speed: pd.DataFrame, sizes: Mapping[str, int], named: Mapping[str, str]
) -> None:
    for design, size in sizes.items():
        x, y = pooled.loc[design], speed.loc[design].clip(upper=EDGE)
        color, reached = COLORS[size], np.isfinite(speed.loc[design, "ratio"])
        axes.plot([x["low"], x["high"]], [y["ratio"]] * 2, color=color, linewidth=1)
        axes.plot([x["ratio"]] * 2, [y["low"], y["high"]], color=color, linewidth=1)
        axes.plot(x["ratio"], y["ratio"], color=color, marker="o" if reached else "^", markersize=4)
        if design in named:
            # The reference stands alone; the others are among designs of single completions, and their names apart.
            place, side = NAME_PLACES[min(list(named).index(design), len(NAME_PLACES) - 1)]
            axes.annotate(
                named[design].split(",")[0],
                (x["ratio"], y["ratio"]),
                place,
                textcoords="offset points",
                fontsize=7,
                horizontalalignment=side,
                arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": GREY, "shrinkA": 0, "shrinkB": 2},
            )


def _ratio(row: pd.Series) -> str:
    if np.isnan(row["ratio"]):
        return "unknown"
    return f"{_share(row['ratio'])} [{_share(row['low'])}, {_share(row['high'])}]"


def _share(value: float) -> str:
    return "> 1" if np.isinf(value) else f"{value:.2f}"
