"""A text file that a run appends to: CSV, or JSON by lines. Each look reads what is new, up to the last whole row."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from kaestat.logs.readers import read_log
from kaestat.logs.readers.csv_file import delimiter
from kaestat.watch.reading import Reading

CHUNK = 2**25  # bytes read at once
_WITNESS = 2**10  # bytes at both ends of what was read that tell whether the file is still the same
_LINE = re.compile(r"\bline (\d+)\b")


class GrowingFile:
    """A long table or a dump of verl's in one file.

    Each piece is read as a file of its own, with the header before it, so that formats, hints and errors are those of
    `kaestat.read_log`. A row is taken once its line break is there.

    Parameters
    ----------
    path : Path
    format : str
        ``"csv"``, ``"jsonl"`` or ``"verl"``.
    hints : dict
        As `kaestat.read_log` takes them.
    """

    def __init__(self, path: Path, format: str, hints: dict[str, Any]):
        self._path, self._format, self._hints = path, format, hints
        self._forget()

    def _forget(self) -> None:
        self._offset, self._lines = 0, 0
        self._header = self._parted = b""
        self._first = self._last = b""

    def read(self, *, last: bool = False) -> Reading:
        """What is new.

        Parameters
        ----------
        last : bool
            Whether there will be no other look: a row without a line break is taken too, if it can be read.

        Raises
        ------
        ValueError
            If a row is invalid; the message names its line.
        """
        anew = self._is_another()
        if anew:
            self._forget()
        data, more = self._new_bytes()
        if self._format == "csv" and not self._header:
            cut = data.find(b"\n") + 1
            if not cut:
                return Reading(anew=anew, waiting=f"{self._path}: has no header line yet.")
            self._header = data[:cut]
            self._take(data[:cut])
            data = data[cut:]
        whole = self._whole_rows(data)
        rows, rest = data[:whole], data[whole:]
        if rows.strip():
            log = self._parse(rows)
            self._take(rows)
            return Reading(log, anew=anew, more=more or (last and bool(rest.strip())))
        if not (last and rest.strip()):
            return Reading(anew=anew, more=more)
        try:
            log = self._parse(rest)
        except ValueError as error:
            return Reading(anew=anew, waiting=f"{error} It was left out.")
        self._take(rest)
        return Reading(log, anew=anew)

    def _is_another(self) -> bool:
        """Whether the file is not the one that was read: shorter, or with other bytes."""
        if not self._offset:
            return False
        if self._path.stat().st_size < self._offset:
            return True
        with open(self._path, "rb") as file:
            first = file.read(len(self._first))
            file.seek(self._offset - len(self._last))
            return first != self._first or file.read(len(self._last)) != self._last

    def _new_bytes(self) -> tuple[bytes, bool]:
        """Bytes from where the last look ended, at least one whole row if there is any; and whether there are more."""
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            data = file.read(CHUNK)
            while len(data) % CHUNK == 0 and data and not self._whole_rows(data):
                further = file.read(CHUNK)
                if not further:
                    break
                data += further
            return data, bool(file.read(1))

    def _whole_rows(self, data: bytes) -> int:
        """Length of the rows that are complete."""
        end = data.rfind(b"\n") + 1
        if self._format != "csv" or b'"' not in data:
            return end
        # A quoted text may hold line breaks, and one that is not closed reaches to the end: neither ends a row.
        quoted = re.compile(rb'(?:^|(?<=[\n%b]))"[^"]*+(?>(?:""[^"]*+)*)"?' % re.escape(self._delimiter()))
        return quoted.sub(lambda field: b"x" * len(field[0]), data).rfind(b"\n") + 1

    def _delimiter(self) -> bytes:
        if not self._parted:
            self._parted = delimiter(self._path).encode()
        return self._parted

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._first = (self._first + data)[:_WITNESS] if len(self._first) < _WITNESS else self._first
        self._last = (self._last + data)[-_WITNESS:]
        self._offset += len(data)
        self._lines += data.count(b"\n")

    def _parse(self, rows: bytes) -> Any:
        before = self._lines - self._header.count(b"\n")
        with tempfile.TemporaryDirectory() as folder:
            piece = Path(folder) / self._path.name
            piece.write_bytes(self._header + rows)
            try:
                return read_log(piece, format=self._format, **self._hints)
            except (ValueError, TypeError) as error:
                told = str(error).replace(str(piece), str(self._path))
                raise type(error)(_LINE.sub(lambda found: f"line {int(found[1]) + before}", told)) from error
