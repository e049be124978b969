"""Progress on the terminal: a bar with rate and time left for each part, and one line when it is done. Imports rich."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import pandas as pd
from rich.console import Console
from rich.table import Table

from kaestat.report import progress

Clock = Callable[[], float]
MINUTE = 60.0
INSTANT = 0.5  # seconds within which a unit that is counted was there before
WIDTH_OF_FILES = 160  # where the output is not a terminal, and so has no width of its own


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


class MinuteLines:
    """A line a minute on how far a part is, for output that is not a terminal: logs of schedulers, files.

    say: Takes a line.
    total: Units of the part; 0 where they are not known.
    clock: Seconds from any beginning.
    """

    def __init__(self, say: Callable[[str], None], part: str, total: int, clock: Clock = time.monotonic):
        self._say, self._part, self._total, self._clock = say, part, total, clock
        self._begin = self._said = clock()
        self._done = 0
        # What is there already from an earlier call is counted in no time, and would spoil the rate.
        self._found: int | None = None

    def advance(self) -> None:
        """Count a unit as done, and say so if a minute has passed."""
        now = self._clock()
        if self._found is None and now - self._begin > INSTANT:
            self._found = self._done
        self._done += 1
        if now - self._said >= MINUTE:
            self._say(self._line(now))
            self._said = now

    def _line(self, now: float) -> str:
        rate = (self._done - (self._found or 0)) / (now - self._begin)
        shown = f"{rate:,.1f}/s" if rate >= 1 else f"{rate * MINUTE:,.1f}/min"
        if not self._total:
            return f"{self._part}: {self._done}, {shown}"
        left = timedelta(seconds=round(max(0, self._total - self._done) / rate))
        return f"{self._part}: {self._done}/{self._total}, {shown}, {left} left"


def say(console: Console, line: str) -> None:
    """Print a line as it is, whatever it contains."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def timed_progress(console: Console, part: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a part at work; yields the function that counts one unit as done.

    A terminal shows a bar; elsewhere there is a line a minute (`MinuteLines`).

    total: Units of the part.
    """
    begin = time.perf_counter()
    if console.is_terminal:
        with progress.progress_bar(console) as bar:
            task = bar.add_task(part, total=total)
            yield lambda: bar.advance(task)
    else:
        yield MinuteLines(partial(say, console), part, total).advance
    say(console, f"{part:<44} {time.perf_counter() - begin:8.1f} s")
