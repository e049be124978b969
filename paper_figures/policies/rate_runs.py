"""A study of which only the runs that choose learning rates were made: few seeds, but every design at every rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kaestat.report.plots import STYLE
from llm_experiments.study.endpoints import area, completions_to, on_grid
from paper_figures.policies.figures import COLORS
from paper_figures.shared.charts import line_key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTION = (
    "{seeds} runs of each design on one base model, each at its best rate. 'Mean accuracy' is that over the first "
    "{common:,} completions, at matched temperature, and its differences are paired run by run, with their standard "
    "errors. 'Completions' are those to the accuracy that {reference} has after {budget:,}, as a share of these: by "
    "the mean curve, and by each run's own."
)
POINTS = 101


def chosen(curves: pd.DataFrame) -> pd.DataFrame:
    """The runs of each design at the rate with the highest mean accuracy over what all runs have in common."""
    grid = np.linspace(0, _common(curves), POINTS)
    found = []
    for _, design in curves.groupby("design", sort=False):
        heights = {
            rate: float(area(on_grid(own, "matched", grid), grid).mean()) for rate, own in design.groupby("rate")
        }
        found.append(design[design["rate"] == max(heights, key=heights.__getitem__)])
    return pd.concat(found, ignore_index=True)


def rate_runs_table(curves: pd.DataFrame, reference: str, control: str, names: Mapping[str, str]) -> pd.DataFrame:
    """Designs at their best rates, as text cells.

    Parameters
    ----------
    curves : DataFrame
        ``rate_curves.csv`` of a study; runs may have been cut off, not the reference's.
    reference, control : str
        Designs that the others are compared with.
    names : mapping
        Design to what it is called.
    """
    best, end = chosen(curves), int(curves["generated"].max())
    common = _common(curves)
    first, whole = np.linspace(0, common, POINTS), np.linspace(0, end, POINTS)
    areas = {name: area(on_grid(own, "matched", first), first) for name, own in best.groupby("design")}
    target = on_grid(best[best["design"] == reference], "matched", whole)[:, -1].mean()
    rows = []
    for name, called in names.items():
        own = best[best["design"] == name]
        grid = whole[whole <= own["generated"].max()]
        runs = on_grid(own, "matched", grid)
        each = " / ".join(_share(completions_to(target, run, grid) / end) for run in runs)
        rows.append(
            {
                "Design": called,
                "Rate": f"{own['rate'].iloc[0]:g}",
                "Mean accuracy": f"{areas[name].mean():.3f}",
                f"less {names[reference]}": _gap(areas[name] - areas[reference]),
                f"less {names[control]}": _gap(areas[name] - areas[control]),
                "Completions": f"{_share(completions_to(target, runs.mean(0), grid) / end)} ({each})",
                f"After {common:,}": f"{on_grid(own, 'matched', first)[:, -1].mean():.3f}",
                f"After {end:,}": f"{runs[:, -1].mean():.3f}" if grid[-1] == end else "cut off",
            }
        )
    return pd.DataFrame(rows)


def rate_runs_caption(curves: pd.DataFrame, reference: str, names: Mapping[str, str]) -> str:
    """What the table shows."""
    return CAPTION.format(
        seeds=curves["seed"].nunique(),
        common=_common(curves),
        reference=names[reference],
        budget=int(curves["generated"].max()),
    )


def rate_runs_figure(curves: pd.DataFrame, names: Mapping[str, str]) -> Figure:
    """Learning curves at the best rates, single runs thin."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = drawing.subplots()
        for (name, own), color in zip(chosen(curves).groupby("design", sort=False), COLORS, strict=False):
            for _, run in own.groupby("seed"):
                axes.plot(run["generated"] / 1000, run["matched"], color=color, linewidth=0.7, alpha=0.6)
            mean = own.groupby("generated")["matched"].mean()
            axes.plot(mean.index / 1000, mean, color=color, label=names[str(name)])
        axes.set(xlabel="Completions generated (thousands)", ylabel="Test accuracy, matched temperature")
        keys = [line_key(names[name], color=color) for name, color in zip(names, COLORS, strict=False)]
        axes.legend(handles=keys, frameon=False, loc="lower right")
    return drawing


def _common(curves: pd.DataFrame) -> int:
    """Completions that every run has got to."""
    return int(curves.groupby(["design", "rate", "seed"])["generated"].max().min())


def _share(value: float) -> str:
    return "not reached" if np.isnan(value) else f"{value:.2f}"


def _gap(values: np.ndarray) -> str:
    if not values.any():
        return ""
    return f"{values.mean():+.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}"
