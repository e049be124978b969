"""The common part of the HTML reports: layout, style, sortable tables, and embedded files to download.

A page made here is one file. It asks for nothing over the network, and a content security policy in its head keeps it
so: only the images in the page are shown, and only the scripts of this package run, whatever a log calls its prompts.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kaestat.report.printable import printable

if TYPE_CHECKING:
    from jinja2 import Environment

MEDIA_TYPES = {
    ".csv": "text/csv;charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown;charset=utf-8",
    ".tex": "application/x-tex;charset=utf-8",
}


@dataclass(frozen=True)
class Cell:
    """A cell of a sortable table."""

    text: str  # Escaped by the template
    css: str = ""  # Classes
    key: float | None = None  # What to sort by, where the text does not begin with that number
    drawing: str = ""  # SVG shown instead of the text, made by `kaestat.report.interval_marks`; never text from outside
    href: str = ""  # Where the text leads; empty for no link
    note: str = ""  # What stands below the text, in small print, where there is room


@dataclass(frozen=True)
class Download:
    """A file embedded in the page."""

    name: str  # What it is saved as, with one of the suffixes of `MEDIA_TYPES`
    content: bytes

    @property
    def href(self) -> str:
        """The whole file as a data link."""
        kind = MEDIA_TYPES[PurePosixPath(self.name).suffix]
        return f"data:{kind};base64,{base64.b64encode(self.content).decode()}"

    @property
    def size(self) -> str:
        """The file's size in words."""
        length = len(self.content)
        return f"{length} bytes" if length < 1000 else f"{length / 1000:.0f} kB"


def environment(package: str, *, charts: bool = False) -> Environment:
    """A Jinja environment with a package's templates and, as fallback, kaestat's ``layout.html`` and ``parts.html``.

    Parameters
    ----------
    package : str
        Name of an importable package with a folder ``templates``.
    charts : bool
        Whether pages have figures of `kaestat.report.charts`, for which uPlot (50 kB) goes into each.
    """
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
    names = ["sorting.js", "copying.js", *(("uplot.js", "charts.js") if charts else ())]
    scripts = [(templates / name).read_text(encoding="utf-8") for name in names]
    styles = ["style.css", *(("uplot.css", "charts.css") if charts else ())]
    made.globals |= {
        "style": Markup("\n".join((templates / name).read_text(encoding="utf-8") for name in styles)),
        "scripts": [Markup(script) for script in scripts],
        "script_hashes": [_hash(script) for script in scripts],
    }
    return made


def _hash(script: str) -> str:
    """What the content security policy knows a script by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
