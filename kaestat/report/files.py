"""The files of `kaestat analyze --out`: tables, figure, report and provenance."""

import base64
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.provenance import Provenance
from kaestat.core.storage import write_atomically
from kaestat.report.analysis import Analysis
from kaestat.report.bandwidth_chart import bandwidth_chart
from kaestat.report.gradient import GradientAnalysis
from kaestat.report.gradient_text import NOISE_HEADER, NOISE_TITLE, noise_rows, noise_unit, noise_unit_line
from kaestat.report.headline import headline_parts, paste_lines, paste_notes, sampling_hint
from kaestat.report.html_page import Cell, Download, environment
from kaestat.report.interval_marks import interval_marks
from kaestat.report.json_output import to_json
from kaestat.report.law import LAW_TITLE, LawAnalysis, law_header, law_line, law_rows
from kaestat.report.method_cells import glossary, method_cell, policy_cell
from kaestat.report.plots import render, risk_against_bandwidth
from kaestat.report.sampling import SAMPLING_HEADER, SAMPLING_TITLE, SamplingAnalysis, sampling_rows, sampling_unit_line
from kaestat.report.tables import DIFFERENCE, comparison, fact_lines, selection_line, unit_line, unit_of
from kaestat.report.unit import Unit

DrawnTable: TypeAlias = tuple[list[Cell], list[list[Cell]], str]  # header, rows, and what the drawings show


def write_report(analysis: Analysis, provenance: Provenance, folder: str | os.PathLike[str]) -> list[Path]:
    """Write all files: each is complete before the first is written, and each replaces its old file atomically.

    Returns the files written to the folder, which is made if absent: ``risk.csv``, ``bandwidth.csv`` and
    ``risk_vs_bandwidth.png, .pdf`` where the log identifies the MSE (G >= 2), ``gradient.csv`` where it has weights or
    lengths, ``law.csv`` where also rewards are 0 and 1 and prompts come back, ``sampling.csv`` if asked for, and always
    ``differences.csv, provenance.json, report.html``.
    """
    texts = text_files(analysis, provenance)
    files: dict[str, bytes | str] = dict(texts)
    if analysis.paths:
        figure = risk_against_bandwidth(analysis)
        files |= {f"risk_vs_bandwidth.{kind}": render(figure, kind) for kind in ("png", "pdf")}
    files["report.html"] = html_report(analysis, provenance)
    for name, content in files.items():
        write_atomically(Path(folder) / name, content)
    return [Path(folder) / name for name in files]


def text_files(analysis: Analysis, provenance: Provenance) -> dict[str, str]:
    """The tables and the provenance by file name, to write next to the page and to download from it."""
    made = {}
    if analysis.risk is not None:
        made["risk.csv"] = analysis.risk.to_csv(index=False)
    if analysis.gradient is not None:
        made["gradient.csv"] = analysis.gradient.noise.to_csv(index=False)
    if analysis.law is not None:
        made["law.csv"] = analysis.law.table.to_csv(index=False)
    if analysis.sampling is not None:
        made["sampling.csv"] = analysis.sampling.table.to_csv(index=False)
    made["differences.csv"] = analysis.differences.to_csv(index=False)
    if analysis.paths:
        made["bandwidth.csv"] = analysis.path_table().to_csv(index=False)
    made["provenance.json"] = to_json(asdict(provenance)) + "\n"
    return made


def html_report(analysis: Analysis, provenance: Provenance) -> str:
    """One self-contained HTML page, from which the tables and the provenance can be downloaded."""
    files = {name: Download(name, text.encode()) for name, text in text_files(analysis, provenance).items()}
    header, rows, drawn = _drawn_table(analysis)
    figures = [
        (bandwidth_chart(analysis, kernel), _still(render(risk_against_bandwidth(analysis, [kernel]), "svg")))
        for kernel in analysis.paths
    ]
    return (
        environment("kaestat.report", charts=bool(analysis.paths))
        .get_template("report.html")
        .render(
            headline=headline_parts(analysis),
            paste_lines=paste_lines(analysis),
            paste_notes=list(filter(None, (*paste_notes(analysis), sampling_hint(analysis)))),
            facts=list(fact_lines(analysis.facts)),
            unit=unit_line(analysis),
            header=header,
            rows=rows,
            drawn=drawn,
            table_files=[files[name] for name in ("risk.csv", "differences.csv") if name in files] + [_tex(analysis)],
            gradient=None if analysis.gradient is None else _gradient(analysis.gradient, files["gradient.csv"]),
            law=None if analysis.law is None else _law(analysis.law, files["law.csv"]),
            sampling=None if analysis.sampling is None else _sampling(analysis.sampling, files["sampling.csv"]),
            figures=figures,
            figure_files=[files["bandwidth.csv"]] if analysis.paths else [],
            selection_lines=[selection_line(selection, kernel) for kernel, selection in analysis.paths.items()],
            notes=analysis.notes,
            glossary=glossary(text[0] for text in comparison(analysis)[1]),
            provenance=provenance,
            provenance_files=[files["provenance.json"]],
        )
    )


def _still(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _drawn_table(analysis: Analysis) -> DrawnTable:
    """The main table with its estimates and intervals drawn in one more column, and what that column shows."""
    names, texts = comparison(analysis)
    if analysis.risk is not None:
        shown, estimate, what = analysis.risk, "mse", "MSE"
    else:
        to_default = analysis.differences["reference"] == DEFAULT_METHOD
        shown, estimate, what = analysis.differences[to_default], "difference", DIFFERENCE
    unit = unit_of(analysis)
    numbers = [(shown[column] / 10.0**unit.power).tolist() for column in (estimate, "ci_low", "ci_high")]
    return _with_marks(names, texts, numbers, what, unit, place=2)


def _gradient(gradient: GradientAnalysis, file: Download) -> dict[str, Any]:
    """What the page shows of the gradient's noise."""
    unit = noise_unit(gradient)
    numbers = [(gradient.noise[column] / 10.0**unit.power).tolist() for column in ("noise", "ci_low", "ci_high")]
    table = _with_marks(NOISE_HEADER, noise_rows(gradient), numbers, "noise", unit, place=3)
    return _section(NOISE_TITLE, table, noise_unit_line(gradient), file)


def _law(law: LawAnalysis, file: Download) -> dict[str, Any]:
    """What the page shows of the predicted noise of designs."""
    ends = [law.table[column].tolist() for column in ("noise", "ci_low", "ci_high")]
    table = _with_marks(law_header(law), law_rows(law), ends, "noise", Unit(0), place=2, first=Cell)
    return _section(LAW_TITLE, table, law_line(law), file)


def _sampling(found: SamplingAnalysis, file: Download) -> dict[str, Any]:
    """What the page shows of sampling policies."""
    ends = [found.table[column].tolist() for column in ("worth", "ci_low", "ci_high")]
    table = _with_marks(SAMPLING_HEADER, sampling_rows(found), ends, "worth", Unit(0), place=2, first=policy_cell)
    return _section(SAMPLING_TITLE, table, sampling_unit_line(), file)


def _section(title: str, table: DrawnTable, line: str, file: Download) -> dict[str, Any]:
    header, rows, drawn = table
    return {"title": title, "header": header, "rows": rows, "caption": f"{line} {drawn}", "files": [file]}


def _with_marks(
    names: Sequence[str],
    texts: Sequence[Sequence[str]],
    numbers: Sequence[Sequence[float]],
    what: str,
    unit: Unit,
    *,
    place: int,
    first: Callable[[str], Cell] = method_cell,
) -> DrawnTable:
    """A table with one more column of drawings, beside the estimate, so that a phone shows it without scrolling."""
    axis, marks, logarithmic = interval_marks(*numbers)
    scale = "logarithmic" if logarithmic else "linear"
    header = [Cell(name) for name in names]
    header.insert(place, Cell(f"{what} and 95 % interval, drawn", css="drawing", drawing=axis))
    rows = []
    for text, mark in zip(texts, marks, strict=True):
        row = [first(text[0]), *(Cell(cell, key=0.0 if cell == "reference" else None) for cell in text[1:])]
        row.insert(place, Cell("", css="drawing", drawing=mark))
        rows.append(row)
    shown = f", in units of {unit.name}" if unit.power else ""
    return header, rows, f"Dots and lines: {what} and 95 % interval, {scale} axis{shown}."


def _tex(analysis: Analysis) -> Download:
    """The main table as people read it, for LaTeX with booktabs."""
    import pandas as pd

    names, texts = comparison(analysis)
    table = pd.DataFrame(texts, columns=list(names)).to_latex(
        index=False,
        column_format="l" + "r" * (len(names) - 1),
        caption=f"Value MSE of each method. {unit_line(analysis)}",
        label="tab:value_mse",
        escape=True,
    )
    return Download("value_mse.tex", table.encode())
