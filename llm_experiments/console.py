"""Progress on the terminal: a bar for each part, and one line when it is done. Imports rich."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pandas as pd
from rich.console import Console
from rich.progress import Progress

MINUTE = 60.0  # seconds


def print_table(frame: pd.DataFrame) -> None:
    """A frame on standard output, numbers with four digits and nothing where there is none."""
    print(frame.to_string(index=False, na_rep="", float_format="{:.4g}".format))


def say(console: Console, line: str) -> None:
    """Print a line as it is, whatever it contains."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def timed_progress(console: Console, part: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a part at work; yields the function that counts one unit as done.

    A terminal shows a bar; elsewhere, as in the logs of schedulers, there is a line a minute.

    total: Units of the part; 0 where they are not known.
    """
    begin = said = time.perf_counter()
    units = 0

    def count() -> None:
        nonlocal said, units
        units += 1
        if time.perf_counter() - said >= MINUTE:
            said = time.perf_counter()
            say(console, f"{part}: {units}" + (f"/{total}" if total else ""))

    if console.is_terminal:
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task(part, total=total)
            yield lambda: bar.advance(task)
    else:
        yield count
    say(console, f"{part:<44} {time.perf_counter() - begin:8.1f} s")
