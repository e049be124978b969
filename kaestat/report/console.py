"""Output of the command line for people. Imports rich."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from kaestat.baselines.registry import METHODS
from kaestat.report.analysis import Analysis
from kaestat.report.gradient_text import NOISE_HEADER, NOISE_TITLE, noise_rows, noise_unit_line
from kaestat.report.headline import headline_parts, paste_lines, paste_notes, sampling_hint
from kaestat.report.law import LAW_TITLE, law_header, law_line, law_rows
from kaestat.report.printable import printable
from kaestat.report.sampling import SAMPLING_HEADER, SAMPLING_TITLE, sampling_rows, sampling_unit_line
from kaestat.report.tables import PATH_HEADER, comparison, fact_lines, path_rows, selection_line, unit_line, unit_of
from kaestat.report.unit import Unit
from kaestat.smoothing.selectors import BandwidthSelection

if TYPE_CHECKING:
    from kaestat.report.comparison import RunComparison

WIDTH_OF_FILES = 120  # where the output is not a terminal, and so has no width of its own


class Terminal(Console):
    """A console that prints names of columns, prompts and files literally, whatever they contain."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The printed text, with escapes for characters that the terminal would obey; all output passes here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


STDERR = Terminal(stderr=True)


@contextmanager
def stage(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show on a terminal what is being done and for how long, until it is done."""
    if quiet or not STDERR.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=STDERR, transient=True) as progress:
        progress.add_task(escape(what), total=None)
        yield


def show_analysis(analysis: Analysis, *, source: str, with_paths: bool, rows: int | None = None) -> None:
    """Print the answer, then facts, tables and notes.

    With ``rows`` so many of the main table, with those that the answer names; ``with_paths`` adds the risk of KAE along
    the bandwidth.
    """
    terminal = screen()
    for part in headline_parts(analysis):
        terminal.print(Text(part, style="bold"))
    for where, line in paste_lines(analysis):
        terminal.print(Text(f"{where}:"))
        terminal.print(Text(f"  {line}"), soft_wrap=True)
    for note in filter(None, (*paste_notes(analysis), sampling_hint(analysis))):
        terminal.print(Text(note))
    terminal.print()
    terminal.print(Text(source, style="bold"))
    for line in fact_lines(analysis.facts):
        terminal.print(Text(line))
    terminal.print()
    header, every = comparison(analysis)
    named = (analysis.recommendation.row, analysis.recommendation.rival)
    shown = [row for k, row in enumerate(every) if rows is None or k < rows or row[0] in named]
    terminal.print(_table(header, shown))
    if more := len(every) - len(shown) + len(analysis.unscored):
        terminal.print(Text(f"{more} more methods with --all.", style="dim"))
    terminal.print(Text(unit_line(analysis), style="dim"))
    terminal.print()
    if analysis.gradient is not None:
        terminal.print(Text(NOISE_TITLE))
        terminal.print(_table(NOISE_HEADER, noise_rows(analysis.gradient)))
        terminal.print(Text(noise_unit_line(analysis.gradient), style="dim"))
        terminal.print()
    if analysis.law is not None:
        terminal.print(Text(LAW_TITLE))
        terminal.print(_table(law_header(analysis.law), law_rows(analysis.law)))
        terminal.print(Text(law_line(analysis.law), style="dim"))
        terminal.print()
    if analysis.sampling is not None:
        terminal.print(Text(SAMPLING_TITLE))
        terminal.print(_table(SAMPLING_HEADER, sampling_rows(analysis.sampling)))
        terminal.print(Text(sampling_unit_line(), style="dim"))
        terminal.print()
    if with_paths:
        for kernel, selection in analysis.paths.items():
            title = f"MSE of kae, {kernel} kernel, at visits with an earlier one"
            _show_path(terminal, selection, title, unit_of(analysis))
    for note in analysis.notes:
        terminal.print(Text(note, style="dim"))


def show_comparison(found: RunComparison) -> None:
    """Print a comparison of two runs."""
    from kaestat.report import comparison_text as text

    terminal = screen()
    for part in text.comparison_headline(found):
        terminal.print(Text(part, style="bold"))
    terminal.print()
    terminal.print(_table(text.comparison_header(found), text.figure_rows(found)))
    if not found.errors.empty:
        terminal.print()
        terminal.print(Text(f"Value MSE of each method, in units of {text.error_unit(found).name}"))
        terminal.print(_table(("method", *text.comparison_header(found)[1:]), text.error_rows(found)))
    terminal.print()
    for note in text.comparison_notes(found):
        terminal.print(Text(note, style="dim"))


def show_written(paths: Sequence[Path]) -> None:
    """Print the names of the written files, the report last."""
    terminal = screen()
    terminal.print(Text(f"Written to {paths[0].parent}: {', '.join(path.name for path in paths)}"), soft_wrap=True)


def show_selection(selection: BandwidthSelection, kernel: str) -> None:
    """Print the selected bandwidth and its risk path."""
    terminal = screen()
    terminal.print(Text(selection_line(selection, kernel), style="bold"))
    if len(selection.path):
        terminal.print()
        title = f"Risk of selector {selection.selector}, {kernel} kernel"
        _show_path(terminal, selection, title, Unit.of(selection.path["risk"]))


def show_methods() -> None:
    """Print every method with its summary and remarks."""
    rows = [(name, "; ".join((method.summary, *method.remarks))) for name, method in METHODS.items()]
    screen().print(_table(("method", "value, scaling, source"), rows, numeric=False))


def _show_path(terminal: Console, selection: BandwidthSelection, title: str, unit: Unit) -> None:
    terminal.print(Text(f"{title} (bandwidth in {selection.time_axis}s; the rest in units of {unit.name})"))
    terminal.print(_table(PATH_HEADER, path_rows(selection, unit)))
    terminal.print()


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
