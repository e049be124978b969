"""All studies, all tables and figures, the analyses of reward logs, and the page that shows them."""

import json
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from kaestat.core.storage import write_atomically
from paper_figures.report.claims import claims
from paper_figures.report.logs import log_sections
from paper_figures.report.outcome import Failure, Report
from paper_figures.report.page import page
from paper_figures.report.sections import SECTIONS, Section
from paper_figures.shared.output import write_csv
from simulations import studies
from simulations.harness import RunSettings, Store, run
from simulations.harness.provenance import provenance

T = TypeVar("T")


def reproduce(
    out: str | os.PathLike,
    *,
    seed: int = 0,
    scale: float = 1.0,
    jobs: int = 2,
    data: str | None = None,
    sections: Sequence[Section] = SECTIONS,
    say: Callable[[str], object] = lambda line: None,
) -> Report:
    """Make everything, in the folder ``out``; an interrupted run goes on where it stopped.

    out: Gets ``index.html``, ``claims.csv``, tables, figures, ``provenance.json``, and the studies' samples below
        ``runs``.
    seed, scale, jobs: As in `simulations.harness.RunSettings`.
    data: Folder with a real reward log, `paper_figures.report.logs.REAL_LOG`.
    say: Gets a line at the end of each part.
    Raises ValueError if a setting is out of range; before any work starts.
    Raises OSError if the folder cannot be written to, asked before any work starts; or if the disk fills up on the way.
    """
    out = Path(out)
    settings = RunSettings(out=out / "runs", seed=seed, scale=scale, jobs=jobs)
    names = dict.fromkeys(section.study for section in sections if section.study)
    chosen = {name: studies.get(name) for name in names}
    Store(out).check_writable()

    report = Report(settings, (*sections, *log_sections(data, seed)))
    for name, study in chosen.items():
        part = f"study {name}"
        result = _attempt(part, report, say, lambda s=study: run(s, settings))
        if result is not None and result.failures:  # half a table misleads
            first, more = result.failures[0], len(result.failures) - 1
            error = first["error"] + (f" (and {more} more parts of the study failed)" if more else "")
            _fail(Failure(part, error, first["trace"], first.get("replay", "")), report, say)
        elif result is not None:
            report.results[name] = result
    for section in report.sections:
        for file in section.files():  # nothing there shall be older than the report
            (out / file).unlink(missing_ok=True)
        if section.study and section.study not in report.results:
            continue
        summary = report.results[section.study].summary if section.study else pd.DataFrame()
        built = _attempt(f"section {section.name}", report, say, lambda s=section, d=summary: s.build(d, out))
        if built is not None:
            report.built[section.name] = built
    record = provenance(seed=seed) | _record(report)
    write_atomically(out / "provenance.json", json.dumps(record, indent=1) + "\n")
    write_csv(claims(report.findings()), out, "claims")
    write_atomically(out / "index.html", page(report, record))
    return report


def _attempt(part: str, report: Report, say: Callable[[str], object], make: Callable[[], T]) -> T | None:
    """What ``make`` gives, or None and a failure in the report."""
    started = time.perf_counter()
    try:
        made = make()
    except Exception as error:
        _fail(Failure(part, f"{type(error).__name__}: {error}", traceback.format_exc()), report, say)
        return None
    report.seconds[part] = round(time.perf_counter() - started, 2)
    say(f"{part:<30} {report.seconds[part]:6.1f} s")
    return made


def _fail(failure: Failure, report: Report, say: Callable[[str], object]) -> None:
    report.failures.append(failure)
    say(f"{failure.part:<30} failed: {failure.error}")
    if failure.replay:
        say(f"  see it fail: {failure.replay}")


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
            for section in report.sections
            if section.name in report.built
            for file in section.files()
        },
        "failures": [asdict(failure) for failure in report.failures],
        "seconds": report.seconds,
    }
