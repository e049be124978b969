"""What a command found, in sentences and tables: made once, shown on the terminal and on a page."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """A table as people read it."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    caption: str = ""  # What its numbers are


@dataclass(frozen=True, eq=False)
class Document:
    """All that is shown, in the order in which it is shown."""

    title: str
    headline: list[str]  # The answer, a paragraph for each subject
    lines: list[tuple[str, str]] = field(default_factory=list)  # To paste, each with its place
    remarks: list[str] = field(default_factory=list)  # On these lines
    facts: list[tuple[str, list[str]]] = field(default_factory=list)  # About each log, by its name
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # Needed to interpret the tables
