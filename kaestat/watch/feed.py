"""The log or folder of a run, followed as it grows; the run may not have begun."""

import os
import warnings
from pathlib import Path
from typing import Any

from kaestat.logs.readers.formats import format_of
from kaestat.logs.ungraded import UngradedWarning
from kaestat.watch.growing_file import GrowingFile
from kaestat.watch.reading import Reading
from kaestat.watch.rollout_folder import RolloutFolder
from kaestat.watch.whole_file import WholeFile

GROWING = ("csv", "jsonl", "verl")
APPENDED = (".csv", ".tsv", ".jsonl", ".ndjson")
SOURCES: dict[str, type[GrowingFile | RolloutFolder | WholeFile]] = {
    "growing file": GrowingFile,
    "folder": RolloutFolder,
    "whole file": WholeFile,
}
ROW = 2**16  # bytes in which a first line ends, if it does not hold whole completions


class Feed:
    """The new part of a run's log at each look, in all formats of `kaestat.read_log`.

    CSV and JSONL files are read from the end of the last look, folders of verl and TRL file by file. Other files
    (Parquet, JSON, compressed ones) cannot be read in parts: after each change they are read as a whole.

    Parameters
    ----------
    path : path
        It may not exist yet.
    format, **hints
        As `kaestat.read_log` takes them.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.csv"
    >>> feed = Feed(file)
    >>> feed.read().log is None
    True
    >>> _ = file.write_text("prompt,step,reward\\na,0,1\\na,0,0\\nb,1,")
    >>> feed.read().log
    RewardLog(2 completions, 1 prompt, 1 visit, 1 step)
    """

    def __init__(self, path: str | os.PathLike[str], format: str = "auto", **hints: Any):
        self._path, self._format, self._hints = Path(path), format, hints
        self._source: GrowingFile | RolloutFolder | WholeFile | None = None
        self._source_format: list[str] = []  # its kind, and the format's name

    def read(self, *, last: bool = False) -> Reading:
        """The new part of the log.

        Parameters
        ----------
        last : bool
            Whether this is the last look: incomplete parts are then read too, as far as possible.

        Raises
        ------
        ValueError, TypeError
            If the log cannot be read for a reason other than faulty rows: a column is missing, a hint unknown; with
            ``last``, also if the format is unclear.
        OSError
            With ``last``, if the log cannot be opened or read. Otherwise this is reported, and tried again.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UngradedWarning)  # `RewardLog.ungraded` of the reading counts them
                return self._read(last=last)
        except OSError as error:
            if last:
                raise
            return Reading(waiting=f"{self._path}: cannot be read now ({error.strerror or error}); is tried again.")

    def state(self) -> dict[str, Any] | None:
        """The reading position as plain data; None before reading has begun."""
        return None if self._source is None else {"format": self._source_format, "source": self._source.state()}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Continue from a position in `state`.

        Raises
        ------
        ValueError
            If the state is not of a feed.
        """
        if state is None:
            return
        try:
            kind, name = SOURCES[state["format"][0]], state["format"][1]
            source = kind(self._path, name, self._hints)
            source.restore(state["source"])
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"state: not of a feed ({type(error).__name__}: {error}).") from error
        self._source, self._source_format = source, [str(part) for part in state["format"]]

    def _read(self, *, last: bool) -> Reading:
        if self._source is None:
            told = self._begin(last=last)
            if self._source is None:
                return Reading(waiting=told)
        if not self._path.exists():
            return Reading(waiting=f"{self._path}: was there, and is no more.")
        return self._source.read(last=last)

    def _begin(self, *, last: bool) -> str:
        """Find out how to read the log, or say what is missing."""
        path = self._path
        if not path.exists():
            return f"{path}: no such file or folder yet."
        if path.is_file():
            with open(path, "rb") as file:
                start = file.read(ROW)
            by_lines = path.suffix.lower() in APPENDED
            if not start.strip() or (by_lines and not last and len(start) < ROW and b"\n" not in start):
                return f"{path}: nothing is in it yet."
        elif not any(path.iterdir()):
            return f"{path}: an empty folder so far."
        try:
            known = format_of(path, self._format)
        except ValueError as error:
            if last:
                raise
            return str(error)
        for hint in self._hints:
            if hint not in known.hints:
                raise ValueError(f"unknown hint {hint!r}: format {known.name!r} takes {', '.join(known.hints)}.")
        if path.is_dir() and not known.takes_folder:
            raise ValueError(f"{path}: is a folder, but format {known.name!r} reads one file; give its path.")
        kind = "whole file"
        if path.is_dir():
            kind = "folder"
        elif known.name in GROWING and path.suffix.lower() != ".gz":
            kind = "growing file"
        self._source, self._source_format = SOURCES[kind](path, known.name, self._hints), [kind, known.name]
        return ""
