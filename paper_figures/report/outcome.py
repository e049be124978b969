"""What a whole reproduction found, and what failed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paper_figures.report.logs import LogReport, LogSource
from paper_figures.report.sections import Built, Section
from paper_figures.shared.finding import Finding
from simulations.harness import RunSettings, StudyResult


@dataclass(frozen=True)
class Failure:
    """A part that could not be made.

    part: ``study NAME``, ``section NAME`` or ``log NAME``.
    error: In one line.
    detail: The trace.
    replay: The command that shows it again; empty if there is none.
    """

    part: str
    error: str
    detail: str = ""
    replay: str = ""


@dataclass(eq=False)
class Report:
    """What a run found; parts that failed are missing from ``sections`` and ``logs``.

    planned: In the order of the page.
    """

    settings: RunSettings
    planned: Sequence[Section]
    sources: Sequence[LogSource]
    results: dict[str, StudyResult] = field(default_factory=dict)
    sections: dict[str, Built] = field(default_factory=dict)
    logs: dict[str, LogReport] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the page and its files are: the studies' samples lie below it."""
        return Path(self.settings.out).parent

    def findings(self) -> list[Finding]:
        """All findings, in the order of the page."""
        shown = [self.sections[s.name] for s in self.planned if s.name in self.sections]
        return [finding for part in (*shown, *self.logs.values()) for finding in part.findings]

    def failures_of(self, *parts: str) -> list[Failure]:
        """Failures of these parts."""
        return [failure for failure in self.failures if failure.part in parts]
