"""Progress on the terminal: a bar with rate and time left for each part, and one line when it is done. Imports rich."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pandas as pd
from rich.console import Console
from rich.table import Table

from kaestat.report import progress

WIDTH_OF_FILES = 160  # where the output is no terminal, and so has no width of its own


def print_table(frame: pd.DataFrame) -> None:
    """A frame on standard output, numbers with four digits and nothing where there is none."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for position, name in enumerate(frame.columns):
        table.add_column(name, justify="right" if position else "left")
    for row in frame.itertuples(index=False):
        table.add_row(
            *("" if pd.isna(value) else f"{value:.4g}" if isinstance(value, float) else str(value) for value in row)
        )
    screen = Console(highlight=False)
    (screen if screen.is_terminal else Console(highlight=False, width=WIDTH_OF_FILES)).print(table)


@contextmanager
def timed_progress(console: Console, part: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a part at work; yields the function that counts one unit as done.

    Parameters
    ----------
    console : Console
    part : str
    total : int
        Units of the part.
    """
    begin = time.perf_counter()
    with progress.progress_bar(console) as bar:
        task = bar.add_task(part, total=total)
        yield lambda: bar.advance(task)
    console.print(f"{part:<44} {time.perf_counter() - begin:8.1f} s", highlight=False, markup=False)
