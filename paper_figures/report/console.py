"""Progress of the reproduction on the terminal. Imports rich."""

from rich.console import Console
from rich.progress import Progress

from kaestat.report.progress import progress_bar
from paper_figures.report.outcome import Failure
from paper_figures.report.reproduce import Watcher


class ConsoleWatcher(Watcher):
    """A bar for the part at work, and a line for each that is done."""

    def __init__(self, console: Console):
        self._console = console
        self._bar: Progress | None = None
        self._task = None

    def begin(self, part: str) -> None:
        self._bar = progress_bar(self._console)
        self._task = self._bar.add_task(part, total=None)
        self._bar.start()

    def advance(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def end(self, part: str, seconds: float, failure: Failure | None) -> None:
        self._bar.stop()
        if failure is None:
            self._console.print(f"{part:<30} {seconds:6.1f} s", highlight=False, markup=False)
        else:
            self._console.print(
                f"{part:<30} failed: {failure.error}", style="red", highlight=False, markup=False, soft_wrap=True
            )
            if failure.replay:
                self._console.print(f"  see it fail: {failure.replay}", highlight=False, markup=False, soft_wrap=True)
