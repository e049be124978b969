"""What a whole reproduction found, and what failed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paper_figures.report.logs import LogSection
from paper_figures.report.sections import Built, Section
from paper_figures.shared.finding import Finding
from simulations.harness import RunSettings, StudyResult


@dataclass(frozen=True)
class Failure:
    """A part that could not be made.

    part: ``study NAME`` or ``section NAME``.
    error: In one line.
    detail: The trace.
    replay: The command that shows it again; empty if there is none.
    """

    part: str
    error: str
    detail: str
    replay: str = ""


@dataclass(eq=False)
class Report:
    """What a run found; parts that failed are missing from ``results`` and ``built``.

    sections: In the order of the page.
    seconds: How long each part took.
    """

    settings: RunSettings
    sections: Sequence[Section | LogSection]
    results: dict[str, StudyResult] = field(default_factory=dict)
    built: dict[str, Built] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the page and its files are: the studies' samples lie below it."""
        return Path(self.settings.out).parent

    def findings(self) -> list[Finding]:
        """All findings, in the order of the page."""
        return [finding for built in self.built.values() for finding in built.findings]
