"""What the command line prints, for people. Imports rich."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from kaestat.bandwidth import BandwidthSelection
from kaestat.registry import METHODS, make_baseline
from kaestat.report.analysis import Analysis
from kaestat.report.gradient_text import NOISE_HEADER, NOISE_TITLE, noise_rows, noise_unit_line
from kaestat.report.headline import headline, paste_lines, paste_notes
from kaestat.report.sampling import SAMPLING_HEADER, SAMPLING_TITLE, sampling_rows, sampling_unit_line
from kaestat.report.tables import (
    PATH_HEADER,
    comparison,
    fact_lines,
    path_rows,
    selection_line,
    unit_line,
    unit_of,
)
from kaestat.report.unit import Unit

STDERR = Console(stderr=True)
WIDTH_OF_FILES = 120  # where the output is no terminal, and so has no width of its own


@contextmanager
def stage(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show on a terminal what is being done, and for how long, until it is done."""
    if quiet or not STDERR.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=STDERR, transient=True) as progress:
        progress.add_task(escape(what), total=None)
        yield


def show_analysis(analysis: Analysis, *, source: str, with_paths: bool) -> None:
    """Facts, tables and notes."""
    screen = _screen()
    screen.print(Text(source, style="bold"))
    for line in fact_lines(analysis.facts):
        screen.print(Text(line))
    screen.print()
    screen.print(_table(*comparison(analysis)))
    screen.print(Text(unit_line(analysis), style="dim"))
    screen.print()
    if analysis.gradient is not None:
        screen.print(Text(NOISE_TITLE))
        screen.print(_table(NOISE_HEADER, noise_rows(analysis.gradient)))
        screen.print(Text(noise_unit_line(analysis.gradient), style="dim"))
        screen.print()
    if analysis.sampling is not None:
        screen.print(Text(SAMPLING_TITLE))
        screen.print(_table(SAMPLING_HEADER, sampling_rows(analysis.sampling)))
        screen.print(Text(sampling_unit_line(), style="dim"))
        screen.print()
    if with_paths:
        for kernel, selection in analysis.paths.items():
            title = f"MSE of kae, {kernel} kernel, at visits with an earlier one"
            _show_path(screen, selection, title, unit_of(analysis))
    for note in analysis.notes:
        screen.print(Text(note, style="dim"))
    screen.print()
    screen.print(Text(headline(analysis), style="bold"))
    for where, line in paste_lines(analysis):
        screen.print(Text(f"{where}:"))
        screen.print(Text(f"  {line}"), soft_wrap=True)
    for note in paste_notes(analysis):
        screen.print(Text(note))


def show_written(paths: Sequence[Path]) -> None:
    """Which files were written, the report last."""
    screen = _screen()
    screen.print(Text(f"Written to {paths[0].parent}: {', '.join(path.name for path in paths)}"), soft_wrap=True)


def show_selection(selection: BandwidthSelection, kernel: str) -> None:
    """The selected bandwidth and its risk path."""
    screen = _screen()
    if len(selection.path):
        title = f"Risk of selector {selection.selector}, {kernel} kernel"
        _show_path(screen, selection, title, Unit.of(selection.path["risk"]))
    screen.print(Text(selection_line(selection, kernel), style="bold"))


def show_methods() -> None:
    """Every method with its summary."""
    rows = []
    for method in METHODS.values():
        baseline = make_baseline(method.name)
        needs = "weights of completions" if baseline.needs_weights else baseline.missing_input
        rows.append((method.name, method.summary + (f"; needs {needs}" if needs else "")))
    _screen().print(_table(("method", "value, scaling, source"), rows, numeric=False))


def _show_path(screen: Console, selection: BandwidthSelection, title: str, unit: Unit) -> None:
    screen.print(Text(f"{title} (bandwidth in {selection.time_axis}s; the rest in units of {unit.name})"))
    screen.print(_table(PATH_HEADER, path_rows(selection, unit)))
    screen.print()


def _table(header: Iterable[str], rows: Iterable[Sequence[str]], *, numeric: bool = True) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for position, name in enumerate(header):
        table.add_column(name, justify="right" if numeric and position else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _screen() -> Console:
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=WIDTH_OF_FILES)
