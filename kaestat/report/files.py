"""The files of `kaestat analyze --out` and `kaestat compare --out`, and the JSON of ``--json``."""

import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kaestat.core.provenance import Provenance
from kaestat.core.storage import write_atomically
from kaestat.report.analysis import Analysis
from kaestat.report.headline import paste_lines
from kaestat.report.html_page import Download, html_page
from kaestat.report.plots import render, risk_against_bandwidth
from kaestat.report.tables import analysis_document, frames, selection_line

TABLES = ("risk", "differences", "gradient", "law", "sampling", "bandwidth")
FIGURE = "risk_vs_bandwidth"
PROVENANCE = "provenance.json"
NAMES = (*(f"{name}.csv" for name in TABLES), f"{FIGURE}.png", f"{FIGURE}.pdf", PROVENANCE, "report.html")


def write_report(analysis: Analysis, provenance: Provenance, folder: str | os.PathLike[str]) -> list[Path]:
    """Write all files of an analysis, once all are made, and remove those that an earlier one left; their paths."""
    document = analysis_document(analysis, provenance.source)
    files: dict[str, bytes | str] = {}
    for name, frame in frames(analysis).items():
        files[f"{name}.csv"] = frame.to_csv(index=False)
    files[PROVENANCE] = to_json(provenance) + "\n"
    downloads = [Download(name, str(text).encode()) for name, text in files.items()]
    drawn = None
    if analysis.paths:
        figure = risk_against_bandwidth(analysis)
        files |= {f"{FIGURE}.{kind}": render(figure, kind) for kind in ("png", "pdf")}
        drawn = render(figure, "svg")
    files["report.html"] = html_page(
        document,
        downloads=downloads,
        provenance=provenance_lines([provenance]),
        figure=drawn,
        caption="Value MSE of KAE against its bandwidth, with 95 % intervals, and GRPO and REINFORCE++ as lines",
        below=[selection_line(selection, kernel) for kernel, selection in analysis.paths.items()],
    )
    old = NAMES if (Path(folder) / PROVENANCE).exists() else ()
    for name, content in files.items():
        write_atomically(Path(folder) / name, content)
    for name in {*old} - {*files}:
        (Path(folder) / name).unlink(missing_ok=True)
    return [Path(folder) / name for name in files]


def check_folder(folder: Path) -> None:
    """Raise an error before the work starts if a package is missing or nothing can be written to the folder."""
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(f"--out needs {' and '.join(missing)}: pip install 'kaestat[plots]'")
    parent = next(part for part in (folder, *folder.absolute().parents) if part.exists() or part.is_symlink())
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise OSError(
            f"--out {folder}: nothing can be written to {parent} ({error.strerror}); name another folder."
        ) from error


def provenance_lines(provenances: Sequence[Provenance]) -> list[tuple[str, str]]:
    """What a page says of how it was made; the ``provenances`` are of one command, each of a log."""
    first = provenances[0]
    versions = ", ".join(f"{name} {number}" for name, number in first.versions.items())
    return [
        ("Command", first.command),
        *((f"SHA-256 of {each.source}", each.sha256) for each in provenances if each.sha256),
        ("Bootstrap", f"{first.n_boot} draws, seed {first.seed}; at least {first.min_visits} earlier visits"),
        ("Versions", versions),
    ]


def analysis_json(analysis: Analysis, provenance: Provenance) -> str:
    """All results of `kaestat analyze` as JSON text."""
    tables = frames(analysis)
    document = {
        "facts": analysis.facts,
        **{name: tables.get(name) for name in ("risk", "differences", "sampling", "bandwidth")},
        "gradient": analysis.gradient,
        "recommendation": asdict(analysis.recommendation) | {"lines": dict(paste_lines(analysis))},
        "notes": analysis.notes,
        "provenance": provenance,
    }
    return to_json(document)


def to_json(value: Any) -> str:
    """Plain data, dataclasses and tables as JSON text: NaN and infinity become null, and other objects text."""
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):  # a table
        return _plain(value.to_dict("records"))
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
