"""The files of `kaestat analyze --out`: tables, figure, report and provenance."""

from __future__ import annotations

import base64
import os
from dataclasses import asdict
from pathlib import Path

from kaestat.analysis import Analysis
from kaestat.json_output import to_json
from kaestat.plots import render, risk_against_bandwidth
from kaestat.provenance import Provenance
from kaestat.storage import write_atomically
from kaestat.tables import UNIT, comparison, fact_lines, headline, selection_line


def write_report(analysis: Analysis, provenance: Provenance, folder: str | os.PathLike) -> list[Path]:
    """Write all files; each is made before the first is written, and each is replaced in one go.

    Parameters
    ----------
    analysis : Analysis
    provenance : Provenance
    folder : path
        Made if absent.

    Returns
    -------
    list of Path
        What was written: ``risk.csv``, ``bandwidth.csv`` and ``risk_vs_bandwidth.png, .pdf`` where the log identifies
        the MSE (G >= 2), and always ``differences.csv, provenance.json, report.html``.
    """
    files: dict[str, bytes | str] = {}
    if analysis.risk is not None:
        files["risk.csv"] = analysis.risk.to_csv(index=False)
    files["differences.csv"] = analysis.differences.to_csv(index=False)
    if analysis.paths:
        files["bandwidth.csv"] = analysis.path_table().to_csv(index=False)
        figure = risk_against_bandwidth(analysis)
        files |= {f"risk_vs_bandwidth.{kind}": render(figure, kind) for kind in ("png", "pdf")}
    files["provenance.json"] = to_json(asdict(provenance)) + "\n"
    files["report.html"] = html_report(analysis, provenance)
    for name, content in files.items():
        write_atomically(Path(folder) / name, content)
    return [Path(folder) / name for name in files]


def html_report(analysis: Analysis, provenance: Provenance) -> str:
    """One HTML page that needs no other file."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("kaestat"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    header, rows = comparison(analysis)
    figures = {
        kernel: base64.b64encode(render(risk_against_bandwidth(analysis, [kernel]), "svg")).decode()
        for kernel in analysis.paths
    }
    return environment.get_template("report.html").render(
        headline=headline(analysis),
        facts=list(fact_lines(analysis.facts)),
        unit=UNIT,
        header=header,
        rows=rows,
        figures=figures,
        selection_lines=[selection_line(selection, kernel) for kernel, selection in analysis.paths.items()],
        notes=analysis.notes,
        provenance=provenance,
    )
