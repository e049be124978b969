"""The progress bar of every command. Imports rich."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

MINUTE = 60.0


class Rate(ProgressColumn):
    """A column with units per second, or per minute if they are slower."""

    def render(self, task: Task) -> Text:
        """The rate of a task as text; empty before it is known."""
        if not task.speed:
            return Text("")
        rate = f"{task.speed:,.1f}/s" if task.speed >= 1 else f"{task.speed * MINUTE:,.1f}/min"
        return Text(rate, style="progress.data.speed")


def progress_bar(console: Console) -> Progress:
    """A bar with rate and time left, which disappears when its context ends; nothing without a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
