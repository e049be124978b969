"""Output of the command line for people. Imports rich."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from kaestat.baselines.registry import METHODS
from kaestat.report.document import Document
from kaestat.report.printable import printable

WIDTH_OF_FILES = 120  # where the output is not a terminal, and so has no width of its own


class Terminal(Console):
    """A console that prints names of columns, prompts and files literally, whatever they contain."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The printed text, with escapes for characters that the terminal would obey; all output passes here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


STDERR = Terminal(stderr=True)


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Show on a terminal what is being done, until it is done."""
    if not STDERR.is_terminal:
        yield
        return
    with STDERR.status(escape(what)):
        yield


def show(document: Document) -> None:
    """Print the answer, then facts, tables and notes."""
    terminal = screen()
    for part in document.headline:
        terminal.print(Text(part, style="bold"))
    for where, line in document.lines:
        terminal.print(Text(f"{where}:"))
        terminal.print(Text(f"  {line}"), soft_wrap=True)
    for remark in document.remarks:
        terminal.print(Text(remark))
    for name, lines in document.facts:
        terminal.print()
        terminal.print(Text(name, style="bold"))
        for line in lines:
            terminal.print(Text(line))
    for table in document.tables:
        terminal.print()
        terminal.print(Text(table.title))
        terminal.print(_table(table.header, table.rows))
        if table.caption:
            terminal.print(Text(table.caption, style="dim"))
    if document.notes:
        terminal.print()
    for note in document.notes:
        terminal.print(Text(note, style="dim"))


def show_written(paths: Sequence[Path]) -> None:
    """Print the names of the written files, the report last."""
    screen().print(Text(f"Written to {paths[0].parent}: {', '.join(path.name for path in paths)}"), soft_wrap=True)


def show_methods() -> None:
    """Print every method with its summary and remarks."""
    rows = [(name, "; ".join((method.summary, *method.remarks))) for name, method in METHODS.items()]
    screen().print(_table(("method", "value, scaling, source"), rows, numeric=False))


def _table(header: Iterable[str], rows: Iterable[Sequence[str]], *, numeric: bool = True) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for position, name in enumerate(header):
        table.add_column(name, justify="right" if numeric and position else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def screen() -> Console:
    """A console on standard output; if that is not a terminal, with a width that suits a file."""
    terminal = Terminal(highlight=False)
    return terminal if terminal.is_terminal else Terminal(highlight=False, width=WIDTH_OF_FILES)
