"""The report as one HTML page that needs no other file: its tables can be downloaded from the page itself."""

import base64
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kaestat.report.html_page import MEDIA_TYPES, Download, environment
from paper_figures.report.claims import GPUS, REVERSED, claims
from paper_figures.report.claims import VERDICTS as CLAIM_VERDICTS
from paper_figures.report.logs import LogSection
from paper_figures.report.outcome import Failure, Report
from paper_figures.report.sections import Built, PageTable, Section
from paper_figures.shared.finding import FAILS, HOLDS, OPEN, Finding
from simulations import studies

GOOD = (HOLDS, "exact", "within rounding", "k/n", "clear", "near")
BAD = ("differs", FAILS, REVERSED, "no multiple", "off by")
PIXELS = 96  # per inch
VERDICTS = (HOLDS, FAILS, OPEN)


def page(report: Report, provenance: dict[str, Any]) -> str:
    """The whole page.

    provenance: As in ``provenance.json``.
    """
    templates = environment("paper_figures.report")
    templates.filters["mood"] = mood
    findings = report.findings()
    table = claims(findings)
    return templates.get_template("reproduce.html").render(
        parts=[_part(section, report) for section in report.sections],
        headline=headline(findings, report.failures),
        claims=PageTable("", table.rename(columns=str.capitalize)),
        findings=findings,
        verdicts=VERDICTS,
        scale=report.settings.scale,
        provenance=provenance,
        record=_downloads(report.folder, ["claims.csv", "provenance.json"]),
    )


def headline(findings: Sequence[Finding], failures: Sequence[Failure]) -> str:
    """Counts of verdicts, over all of the paper's claims and over our own checks."""
    stated = claims(findings)
    counts = Counter(stated["verdict"])
    words = {HOLDS: "hold", FAILS: "do not hold"}
    of_paper = ", ".join(f"{counts[verdict]} {words.get(verdict, verdict)}" for verdict in CLAIM_VERDICTS)
    ours = Counter(finding.verdict for finding in findings if finding.source == "ours")
    text = [
        f"The paper's claims: {of_paper}, of {len(stated)}.",
        f"Our further checks: {ours[HOLDS]} hold, {ours[FAILS]} do not hold, {ours[OPEN]} undecided.",
    ]
    if failures:
        text.append(f"{len(failures)} {'parts' if len(failures) > 1 else 'part'} failed and could not be judged.")
    return " ".join(text)


def mood(cell: str) -> str:
    """CSS class of a verdict: "good", "bad", "open" or none."""
    if cell in (OPEN, "not checkable", GPUS):
        return "open"
    if cell in GOOD:
        return "good"
    return "bad" if cell.startswith(BAD) else ""


def _downloads(folder: Path, names: Sequence[str]) -> list[Download]:
    """Those of the files that a page can hold, as they lie in the folder."""
    return [Download(name, (folder / name).read_bytes()) for name in names if Path(name).suffix in MEDIA_TYPES]


def _part(section: Section | LogSection, report: Report) -> dict[str, Any]:
    """What the template shows of a section; of one that failed only its failures."""
    built = report.built.get(section.name, Built([], []))
    files = section.files() if section.name in report.built else ()
    parts = f"study {section.study}", f"section {section.name}"
    return {
        "name": section.name,
        "title": section.title,
        "question": section.question or studies.get(section.study).aims,
        "failures": [failure for failure in report.failures if failure.part in parts],
        "findings": built.findings,
        "tables": built.tables,
        "files": _downloads(report.folder, files),
        "links": [name for name in files if Path(name).suffix not in MEDIA_TYPES],
        "figure": base64.b64encode(built.svg).decode(),
        "width": round(PIXELS * built.width),
        "bars": section.bars,
        "origin": _origin(section.study, report),
    }


def _origin(study: str, report: Report) -> str:
    if study not in report.results:
        return ""
    result = report.results[study]
    cells = len(result.study.cells)
    return (
        f"Study {study}, run {result.folder.name}, seed {report.settings.seed}: {cells} cell{'s' * (cells > 1)} of "
        f"{report.settings.replicates(result.study):,} replicates."
    )
