"""The page of ``kaestat watch --out``, light enough to write at every step."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias

import numpy as np

import kaestat
from kaestat.report.charts import Chart, Line
from kaestat.report.html_page import Cell, environment
from kaestat.report.method_cells import glossary, method_cell
from kaestat.report.watch_text import watch_facts, watch_header, watch_headline, watch_notes, watch_rows, watch_unit
from kaestat.watch import RunSummary

POINTS = 300
Figures: TypeAlias = dict[str, np.ndarray]
REFRESH = 30  # seconds after which a browser loads the page again
SHORTEST = 2  # points that make a line


def watch_page(
    summary: RunSummary, along: tuple[np.ndarray, Figures], source: str, command: str, *, following: bool
) -> str:
    """One self-contained HTML page.

    ``along`` has the run's figures along its steps, from `binned`; ``source`` is the log's name, ``command`` what was
    called. If ``following``, the page will be written again, and so reloads itself.
    """
    return _template().render(
        source=source,
        command=command,
        version=kaestat.__version__,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        refresh=REFRESH if following else 0,
        headline=watch_headline(summary),
        facts=list(watch_facts(summary)),
        header=[Cell(name) for name in watch_header(summary)],
        rows=[[method_cell(row[0]), *map(Cell, row[1:])] for row in watch_rows(summary)],
        charts=charts(along, summary),
        notes=list(watch_notes(summary)),
        glossary=glossary(row.method for row in summary.methods),
    )


@cache
def _template() -> Any:
    """Compiled once: that takes longer than everything else."""
    return environment("kaestat.report", charts=True).get_template("watch.html")


def charts(along: tuple[np.ndarray, Figures], summary: RunSummary) -> list[Chart]:
    """Figures over training steps, from `binned`, without those that have no data."""
    step, columns = along
    if len(step) < SHORTEST:
        return []
    names = [row.method for row in summary.methods]
    unit = watch_unit(summary)
    error = {name: columns[f"error:{name}"] / 10.0**unit.power for name in names}
    noise = {name: columns[f"noise:{name}"] for name in names}
    of_reference = np.where(noise[summary.reference] > 0, noise[summary.reference], np.nan)
    alive = {"dead groups": "dead", "all at the top": "right"}
    reach = {"came back": "returned", f"in reach of {summary.reach_of}": "reached"}
    made = [
        Chart(
            f"Value MSE{unit.times}",
            "training step",
            f"value MSE{unit.times}",
            step,
            [Line(name, error[name]) for name in names],
        ),
        _shares("Groups whose rewards are all alike", step, {label: columns[name] for label, name in alive.items()}),
        _shares("Prompts with a past", step, {label: columns[name] for label, name in reach.items()}),
        Chart(
            f"Gradient noise over {summary.reference}'s",
            "training step",
            "ratio",
            step,
            [Line(name, noise[name] / of_reference) for name in names if name != summary.reference],
        ),
        Chart("Mean reward", "training step", "reward", step, [Line("reward", columns["reward"])]),
    ]
    return [chart for chart in made if any(np.isfinite(line.y).any() for line in chart.lines)]


def binned(steps: Mapping[str, Sequence[float]]) -> tuple[np.ndarray, Figures]:
    """Means over runs of neighbouring steps, at most `POINTS` of them: the last step of each, (B,), and its figures.

    They are NaN where none of the steps has the figure.
    """
    step = np.array(steps["step"])
    if len(step) == 0:
        return step, {name: step for name in steps}
    place = np.arange(len(step)) // math.ceil(len(step) / POINTS)
    last = np.flatnonzero(np.diff(place, append=place[-1] + 1))
    figures = {}
    for name, column in steps.items():
        values = np.array(column)
        known = np.isfinite(values)
        count = np.bincount(place, weights=known)
        total = np.bincount(place, weights=np.where(known, values, 0.0))
        figures[name] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return step[last], figures


def _shares(title: str, step: np.ndarray, shares: dict[str, Any]) -> Chart:
    lines = [Line(label, share) for label, share in shares.items() if np.isfinite(share).any()]
    return Chart(title, "training step", "share", step, lines, y_range=(0.0, 1.0))
