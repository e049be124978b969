"""A run followed as a service: its feed, its state, its output files, and its errors."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kaestat.core.storage import load_state, save_state, write_atomically
from kaestat.report.json_output import to_json
from kaestat.report.watch_page import binned, watch_page
from kaestat.watch import Feed, Reading, RunMonitor, RunSummary
from kaestat.watch.monitor_state import monitor_state, restore_monitor

STATE = ".kaestat-watch.state"
TORN = "The last look was interrupted: the figures lack a part of what it read, and the state saved is an earlier one."
MINUTE = 60.0
SAVING_SHARE = 20  # a state is saved once in a minute, or in this many times what saving it takes


@dataclass
class LeftOut:
    """Counts of what could not be read and was skipped."""

    rows: int = 0
    files: int = 0
    first_row: str = ""  # Where the first of them is, and what is wrong with it
    first_file: str = ""
    ungraded: int = 0  # Completions without a reward

    def add(self, reading: Reading) -> None:
        """Add the counts of one look."""
        if reading.left_out:
            self.rows, self.first_row = self.rows + reading.left_out, self.first_row or reading.first
        elif reading.first:
            self.files, self.first_file = self.files + 1, self.first_file or reading.first
        self.ungraded += 0 if reading.log is None else reading.log.ungraded

    def told(self) -> tuple[str, ...]:
        """The counts in sentences."""
        counted = ((self.rows, "row", self.first_row), (self.files, "file", self.first_file))
        told = [
            f"{number:,} {what}{'s' if number > 1 else ''} left out, first at {first}"
            for number, what, first in counted
            if number
        ]
        if self.ungraded:
            told.append(f"{self.ungraded:,} completion{'s' if self.ungraded > 1 else ''} without a reward left out")
        return tuple(told)


class Follower:
    """A followed run: its feed, its state, and its output files.

    Bad rows are set aside. What cannot be done now, as on a full disk or with a file that has vanished, is named in
    `waiting` and tried again at the next look. With ``out``, the state is kept there. The next follower of the same
    run, with the same methods and hints, goes on from it. `monitor` has the state, and `waiting` says what is waited
    for, or went wrong at the last look. ``command`` is for the page, and ``clock`` returns seconds from any origin.
    """

    def __init__(
        self,
        run: Path,
        format: str,
        hints: dict[str, Any],
        methods: list[str],
        out: Path | None,
        command: str,
        clock: Callable[[], float] | None = None,
    ):
        self._run, self._methods, self._out, self._command = run, methods, out, command
        self._of = {"run": str(run.absolute()), "format": format, "hints": hints, "methods": methods}
        self._clock = clock or (lambda: time.monotonic())
        self._begin: Callable[[], Feed] = lambda: Feed(run, format, **hints)
        self._feed, self.monitor, self._left = self._begin(), RunMonitor(methods), LeftOut()
        self.waiting = ""
        self._unwritten = False
        self._save_at = -float("inf")

    def resume(self) -> None:
        """Continue from the state of an earlier follower of the same run, if there is one."""
        if self._out is None or not (self._out / STATE).exists():
            return
        feed, monitor = self._begin(), RunMonitor(self._methods)
        try:
            state = load_state(self._out / STATE)
            if state.get("of") != self._of:
                self.waiting = f"{self._out / STATE}: of another run, or of other methods or hints; begins anew."
                return
            feed.restore(state["feed"])
            restore_monitor(monitor, state["monitor"])
            left = LeftOut(**state["left_out"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.waiting = f"{self._out / STATE}: cannot be read ({error}); begins anew."
            return
        self._feed, self.monitor, self._left, self._unwritten = feed, monitor, left, True

    def summary(self) -> RunSummary:
        """The summary of the run, and what was left out."""
        known = self.monitor.summary()
        return replace(known, told=(*known.told, *self._left.told()))

    def look(self, *, last: bool = False) -> None:
        """Read what is new, and write the files if there is anything.

        A ValueError or TypeError if the log cannot be read whatever its rows are, and nothing of it has been read
        before; with ``last``, also if none of its rows can be read, and an OSError if the log or a file cannot be
        opened, read or written.
        """
        changed, more, waiting = False, True, ""
        before = self._save_at, self.waiting
        self._save_at, self.waiting = -float("inf"), TORN  # until all is done, in case of an interruption
        while more:
            try:
                reading = self._feed.read(last=last)
            except (ValueError, TypeError) as error:
                if last or not self.monitor.summary().n_steps:
                    raise
                reading = Reading(waiting=f"{error} It is tried again.")
            if reading.anew:
                self.monitor, self._left = RunMonitor(self._methods), LeftOut()
                waiting = "The log began anew, and so do its figures."
            if reading.log is not None:
                self.monitor.add(reading.log, whole_steps=reading.whole_steps)
            self._left.add(reading)
            changed |= reading.log is not None or reading.anew or bool(reading.first)
            more, waiting = reading.more, reading.waiting or waiting
        self._refuse_if_nothing(last)
        self._save_at, self.waiting = before
        self.waiting = waiting or ("" if changed else self.waiting * (not self.monitor.summary().n_steps))
        if changed or self._unwritten:
            self._keep(last=last)

    def finish(self) -> None:
        """Count the newest step as complete, as nothing more will come; an OSError if a file cannot be written."""
        if self._out is not None and self._save_at > -float("inf"):
            self._save()  # without the newest step, of which more may come if the run is followed again
        self.monitor.finish()
        self.write(following=False)

    def write(self, *, following: bool) -> None:
        """Write both files atomically; a long run is shown by means of neighbouring steps."""
        if self._out is None:
            return
        summary, along = self.summary(), binned(self.monitor.steps)
        page = watch_page(summary, along, self._run.name, self._command, following=following)
        write_atomically(self._out / "watch.html", page)
        document = {"summary": asdict(summary), "steps": {name: column.tolist() for name, column in along[1].items()}}
        write_atomically(self._out / "watch.json", to_json(document) + "\n")

    def _keep(self, *, last: bool) -> None:
        """Write the files, and the state when it is time; `waiting` names what fails, and the next look retries."""
        try:
            self.write(following=not last)
            if self._out is not None and not last and self._clock() >= self._save_at:
                self._save()
            self._unwritten = False
        except OSError as error:
            if last:
                raise
            self._unwritten = True
            self.waiting = f"{self._out}: cannot be written now ({error.strerror or error}); is tried again."

    def _save(self) -> None:
        assert self._out is not None
        begin = self._clock()
        try:
            state = {"of": self._of, "feed": self._feed.state(), "monitor": monitor_state(self.monitor)}
            save_state(self._out / STATE, state | {"left_out": asdict(self._left)})
        except TypeError as error:  # a prompt or a method that cannot be stored: the log is read again instead
            self.waiting = f"The state of this watch cannot be kept ({error})"
        now = self._clock()
        self._save_at = now + max(MINUTE, SAVING_SHARE * (now - begin))

    def _refuse_if_nothing(self, last: bool) -> None:
        nothing = self.monitor.open_step is None and not self.monitor.summary().n_steps
        if last and nothing and self._left.told():
            raise ValueError(f"{self._run}: {'; '.join(self._left.told())}")
