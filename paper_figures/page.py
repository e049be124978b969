"""The report as one HTML page that needs no other file; its links lead to the files beside it."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kaestat.tables import UNIT
from paper_figures.finding import FAILS, HOLDS, OPEN, Finding
from paper_figures.report import Failure, Report
from paper_figures.sections import PageTable
from simulations import studies

GOOD = (HOLDS, "exact", "within rounding", "k/n", "both", "near")
BAD = ("misses", "differs", FAILS, "advantage not clear", "no multiple", "off by")
PIXELS = 96  # per inch
VERDICTS = (HOLDS, FAILS, OPEN)


@dataclass(frozen=True, eq=False)
class Part:
    """A section of the page.

    Attributes
    ----------
    name, title, question : str
    findings : sequence of Finding
    figure : str
        Base64 of an SVG, empty if none.
    width : int
        Of the figure, in pixels.
    bars : str
        What its error bars are.
    tables : sequence of PageTable
    links : sequence of str
        Files, relative to the page.
    origin : str
        Study, run and number of replicates.
    failures : sequence of Failure
    """

    name: str
    title: str
    question: str
    findings: Sequence[Finding]
    figure: str
    width: int
    bars: str
    tables: Sequence[PageTable]
    links: Sequence[str]
    origin: str
    failures: Sequence[Failure]

    def count(self, verdict: str) -> int:
        """How many findings have that verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)


def page(report: Report, provenance: dict[str, Any]) -> str:
    """The whole page.

    Parameters
    ----------
    report : Report
    provenance : dict
        As in ``provenance.json``.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("paper_figures"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["mood"] = mood
    findings = report.findings()
    return environment.get_template("reproduce.html").render(
        parts=[*_sections(report), *_logs(report)],
        headline=headline(findings, report.failures),
        findings=findings,
        verdicts=VERDICTS,
        scale=report.settings.scale,
        failures=report.failures,
        provenance=provenance,
    )


def headline(findings: Sequence[Finding], failures: Sequence[Failure]) -> str:
    """Counts of verdicts in a sentence or two."""
    text = []
    for source, whose in (("paper", "The paper's claims"), ("ours", "Our further checks")):
        counts = Counter(finding.verdict for finding in findings if finding.source == source)
        text.append(f"{whose}: {counts[HOLDS]} hold, {counts[FAILS]} do not hold, {counts[OPEN]} undecided.")
    if failures:
        text.append(f"{len(failures)} {'parts' if len(failures) > 1 else 'part'} failed and could not be judged.")
    return " ".join(text)


def mood(cell: str) -> str:
    """CSS class of a verdict: "good", "bad", "open" or none."""
    if cell in (OPEN, "not checkable"):
        return "open"
    if cell in GOOD:
        return "good"
    return "bad" if cell.startswith(BAD) else ""


def _sections(report: Report) -> list[Part]:
    parts = []
    for section in report.planned:
        built = report.sections.get(section.name)
        failures = report.failures_of(f"study {section.study}", f"section {section.name}")
        parts.append(
            Part(
                name=section.name,
                title=section.title,
                question=section.question or (studies.get(section.study).aims if section.study else ""),
                findings=built.findings if built else (),
                figure=base64.b64encode(built.svg).decode() if built else "",
                width=round(PIXELS * built.width) if built else 0,
                bars=section.bars,
                tables=built.tables if built else (),
                links=section.files() if built else (),
                origin=_origin(section.study, report) if built else "",
                failures=failures,
            )
        )
    return parts


def _logs(report: Report) -> list[Part]:
    parts = []
    for source in report.sources:
        found = report.logs.get(source.name)
        parts.append(
            Part(
                name=source.name,
                title=source.title,
                question="Which method would have had the smallest value MSE, judged by the rewards of the log alone?",
                findings=found.findings if found else (),
                figure="",
                width=0,
                bars="",
                tables=[PageTable(f"{found.headline} {UNIT}", found.table)] if found else (),
                links=(f"{source.name}/report.html", f"{source.name}/risk.csv") if found else (),
                origin="",
                failures=report.failures_of(f"log {source.name}"),
            )
        )
    return parts


def _origin(study: str, report: Report) -> str:
    if not study:
        return "From the paper's printed numbers alone."
    result = report.results[study]
    cells = len(result.study.cells)
    return (
        f"Study {study}, run {result.folder.name}, seed {report.settings.seed}: {cells} cell{'s' * (cells > 1)} of "
        f"{report.settings.replicates(result.study):,} replicates."
    )
