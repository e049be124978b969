"""All studies, all tables and figures, the analyses of reward logs, and the page that shows them."""

import json
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from kaestat.core.storage import write_atomically
from paper_figures.report.claims import claims
from paper_figures.report.logs import analyse, log_sources
from paper_figures.report.outcome import Failure, Report
from paper_figures.report.page import page
from paper_figures.report.sections import SECTIONS, Section
from paper_figures.shared.output import write_csv
from simulations import studies
from simulations.harness import RunSettings, Store, Study, StudyResult, run
from simulations.harness.provenance import provenance

T = TypeVar("T")
PACKAGES = ("jinja2", "joblib", "matplotlib", "threadpoolctl")


class Watcher:
    """Gets how far the work is; this one keeps silent."""

    def begin(self, part: str) -> None:
        """A part begins."""

    def advance(self, done: int, total: int) -> None:
        """So many replicates of the study are done."""

    def end(self, part: str, seconds: float, failure: Failure | None) -> None:
        """A part is done, or failed."""


def reproduce(
    out: str | os.PathLike,
    *,
    seed: int = 0,
    scale: float = 1.0,
    jobs: int = 2,
    data: str | None = None,
    sections: Sequence[Section] = SECTIONS,
    watcher: Watcher | None = None,
) -> Report:
    """Make everything, in the folder ``out``; an interrupted run goes on where it stopped.

    out: Gets ``index.html``, ``claims.csv``, tables, figures, ``provenance.json``, and the studies' samples below
        ``runs``.
    seed, scale, jobs: As in `simulations.harness.RunSettings`.
    data: Folder with a real reward log, `paper_figures.report.logs.REAL_LOG`.
    Raises ValueError, ImportError if a setting is out of range, or a package is missing; before
        any work starts.
    Raises OSError if the folder cannot be written to, asked before any work starts; or if the disk fills up on the way.
    """
    out, watcher = Path(out), watcher or Watcher()
    settings = RunSettings(out=out / "runs", seed=seed, scale=scale, jobs=jobs)
    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder, and {out} is a file; name another.")
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ImportError(f"the report needs {' and '.join(missing)}: pip install -e '.[simulations]'.")
    chosen = {name: studies.get(name) for name in dict.fromkeys(s.study for s in sections if s.study)}
    Store(out).check_writable()

    report = Report(settings, tuple(sections), log_sources(data))
    for study in chosen.values():
        result = _attempt(f"study {study.name}", report, watcher, lambda s=study: _run(s, settings, watcher))
        if result is not None:
            report.results[study.name] = result
    for section in sections:
        section.remove_files(out)
        if section.study and section.study not in report.results:
            continue
        summary = report.results[section.study].summary if section.study else pd.DataFrame()
        built = _attempt(f"section {section.name}", report, watcher, lambda s=section, d=summary: s.build(d, out))
        if built is not None:
            report.sections[section.name] = built
    for source in report.sources:
        found = _attempt(f"log {source.name}", report, watcher, lambda s=source: analyse(s, out, seed=seed))
        if found is not None:
            report.logs[source.name] = found
    record = provenance(seed=seed) | _record(report)
    write_atomically(out / "provenance.json", json.dumps(record, indent=1) + "\n")
    write_csv(claims(report.findings()), out, "claims")
    write_atomically(out / "index.html", page(report, record))
    return report


class _PartFailed(Exception):
    """Carries the record of a failure."""

    def __init__(self, error: str, detail: str, replay: str):
        super().__init__(error)
        self.detail, self.replay = detail, replay


def _run(study: Study, settings: RunSettings, watcher: Watcher) -> StudyResult:
    """The result of a study, if all of it succeeded: half a table misleads."""
    result = run(study, settings, progress=watcher.advance)
    if result.failures:
        first, more = result.failures[0], len(result.failures) - 1
        error = first["error"] + (f" (and {more} more parts of the study failed)" if more else "")
        raise _PartFailed(error, first["trace"], first.get("replay", ""))
    return result


def _attempt(part: str, report: Report, watcher: Watcher, make: Callable[[], T]) -> T | None:
    """What ``make`` gives, or None and a failure in the report."""
    watcher.begin(part)
    started, made, failure = time.perf_counter(), None, None
    try:
        made = make()
    except _PartFailed as error:
        failure = Failure(part, str(error), error.detail, error.replay)
    except Exception as error:
        failure = Failure(part, f"{type(error).__name__}: {error}", traceback.format_exc())
    if failure is not None:
        report.failures.append(failure)
    report.seconds[part] = round(time.perf_counter() - started, 2)
    watcher.end(part, report.seconds[part], failure)
    return made


def _record(report: Report) -> dict[str, Any]:
    """Which run is behind which file."""
    runs = {name: result.folder.name for name, result in report.results.items()}
    return {
        "scale": report.settings.scale,
        "jobs": report.settings.jobs,
        "studies": {
            name: {
                "run": runs[name],
                "cells": len(result.study.cells),
                "replicates": report.settings.replicates(result.study),
            }
            for name, result in report.results.items()
        },
        "files": {
            file: runs.get(section.study)
            for section in report.planned
            if section.name in report.sections
            for file in section.files()
        },
        "logs": [source.name for source in report.sources if source.name in report.logs],
        "failures": [asdict(failure) for failure in report.failures],
        "seconds": report.seconds,
    }
