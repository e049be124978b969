"""The page of ``kaestat compare --out``."""

import numpy as np

from kaestat.core.provenance import Provenance
from kaestat.report.charts import Chart, Line
from kaestat.report.comparison import RunComparison
from kaestat.report.comparison_text import (
    comparison_header,
    comparison_headline,
    comparison_notes,
    error_rows,
    error_unit,
    figure_rows,
)
from kaestat.report.html_page import Cell, Download, environment
from kaestat.report.method_cells import glossary, method_cell
from kaestat.report.tables import fact_lines


def comparison_page(found: RunComparison, provenances: tuple[Provenance, Provenance]) -> str:
    """One self-contained HTML page."""
    header = [Cell(name) for name in comparison_header(found)]
    errors = error_rows(found)
    return (
        environment("kaestat.report", charts=True)
        .get_template("compare.html")
        .render(
            names=found.names,
            headline=comparison_headline(found),
            facts=[(name, list(fact_lines(facts))) for name, facts in zip(found.names, found.facts, strict=True)],
            header=header,
            rows=[[Cell(text) for text in row] for row in figure_rows(found)],
            error_header=[Cell("method"), *header[1:]],
            error_rows=[[method_cell(row[0]), *map(Cell, row[1:])] for row in errors],
            unit=error_unit(found).name,
            files=[
                Download("figures.csv", found.figures.to_csv(index=False).encode()),
                Download("errors.csv", found.errors.to_csv(index=False).encode()),
            ],
            chart=reward_chart(found),
            notes=list(comparison_notes(found)),
            glossary=glossary(row[0] for row in errors),
            provenances=provenances,
        )
    )


def reward_chart(found: RunComparison) -> Chart:
    """Mean reward of both runs against completions, each with its 95 % band."""
    ends = [curve.completions for curve in found.curves]
    grid = np.unique(np.concatenate(ends))
    lines = []
    for name, curve in zip(found.names, found.curves, strict=True):
        place = np.searchsorted(grid, curve.completions)
        mean, reach = curve.means(), curve.errors()
        columns = np.full((3, len(grid)), np.nan)
        columns[:, place] = mean, mean - reach, mean + reach
        lines.append(Line(name, *columns))
    return Chart("Mean reward against completions", "completions", "mean reward", grid, lines)
