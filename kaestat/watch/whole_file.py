"""A file that is written as a whole: Parquet, JSON, anything compressed. After each change it is read completely."""

from pathlib import Path
from typing import Any

from kaestat.logs.readers import read_log
from kaestat.watch.reading import Reading


class WholeFile:
    """A log in one file that cannot be read in parts."""

    def __init__(self, path: Path, format: str, hints: dict[str, Any]):
        self._path, self._format, self._hints = path, format, hints
        self._seen: tuple[int, int, int] | None = None
        self._read_before = False

    def state(self) -> dict[str, Any]:
        """The reading position as plain data."""
        return {"seen": None if self._seen is None else list(self._seen), "read_before": self._read_before}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a position in `state`."""
        seen = state["seen"]
        self._seen = None if seen is None else (int(seen[0]), int(seen[1]), int(seen[2]))
        self._read_before = bool(state["read_before"])

    def read(self, *, last: bool = False) -> Reading:
        """The whole log if the file has changed.

        At the ``last`` look a ValueError if the file cannot be read; before that it may be incomplete.
        """
        stat = self._path.stat()
        found = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if found == self._seen:
            return Reading()
        try:
            log = read_log(self._path, format=self._format, **self._hints)
        except ValueError as error:
            if last:
                raise
            return Reading(waiting=str(error))
        anew, self._seen, self._read_before = self._read_before, found, True
        return Reading(log, anew=anew)
