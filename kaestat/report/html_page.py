"""HTML pages of one file each, which ask for nothing over the network and run only the scripts of this package."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kaestat.baselines.registry import METHODS
from kaestat.report.document import Document
from kaestat.report.printable import printable

if TYPE_CHECKING:
    from jinja2 import Environment

MEDIA_TYPES = {
    ".csv": "text/csv;charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown;charset=utf-8",
    ".tex": "application/x-tex;charset=utf-8",
}
SCRIPTS = ("sorting.js", "copying.js")


@dataclass(frozen=True)
class Cell:
    """A cell of a sortable table."""

    text: str  # Escaped by the template
    css: str = ""  # Classes
    note: str = ""  # What stands below the text, in small print, where there is room


@dataclass(frozen=True)
class Download:
    """A file embedded in the page."""

    name: str  # What it is saved as, with one of the suffixes of `MEDIA_TYPES`
    content: bytes

    @property
    def href(self) -> str:
        """The whole file as a data link."""
        return data_link(MEDIA_TYPES[PurePosixPath(self.name).suffix], self.content)

    @property
    def size(self) -> str:
        """The file's size in words."""
        length = len(self.content)
        return f"{length} bytes" if length < 1000 else f"{length / 1000:.0f} kB"


def data_link(kind: str, content: bytes) -> str:
    """Content of a media type as a link."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def html_page(
    document: Document,
    *,
    downloads: Sequence[Download],
    provenance: Sequence[tuple[str, str]],
    figure: bytes | None = None,
    caption: str = "",
    below: Sequence[str] = (),
) -> str:
    """A document as one self-contained page, with an SVG figure, its caption and sentences ``below`` it."""
    tables = []
    for table in document.tables:
        methods = [METHODS.get(row[0].split(":")[0]) for row in table.rows]
        notes = ["" if method is None else method.summary for method in methods]
        rows = [[Cell(row[0], note=note), *map(Cell, row[1:])] for row, note in zip(table.rows, notes, strict=True)]
        tables.append((table, [Cell(name) for name in table.header], rows))
    return (
        environment("kaestat.report")
        .get_template("report.html")
        .render(
            document=document,
            tables=tables,
            downloads=downloads,
            provenance=provenance,
            figure=None if figure is None else data_link("image/svg+xml", figure),
            caption=caption,
            below=below,
        )
    )


def environment(package: str) -> Environment:
    """A Jinja environment with a package's templates and, as fallback, kaestat's ``layout.html`` and ``parts.html``."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("kaestat.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Names of files and prompts stand in pages, which people also print in a terminal.
        finalize=lambda value: type(value)(printable(value)) if isinstance(value, str) else value,
    )
    templates = files("kaestat.report") / "templates"
    scripts = [(templates / name).read_text(encoding="utf-8") for name in SCRIPTS]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    made.globals |= {
        "style": Markup((templates / "style.css").read_text(encoding="utf-8")),
        "scripts": [Markup(script) for script in scripts],
        "script_hashes": [f"sha256-{digest}" for digest in hashes],  # what the content security policy knows them by
    }
    return made
