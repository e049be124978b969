"""A text file that a run appends to: CSV, or JSON lines. Each look reads the new rows, up to the last complete one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from kaestat.logs.readers.csv_file import delimiter
from kaestat.watch.reading import Reading
from kaestat.watch.valid_rows import TextRows

CHUNK = 2**25  # bytes read at once
_WITNESS = 2**10  # bytes at both ends of what was read that tell whether the file is still the same
_PATIENCE = 3  # sizes of the file at which a quote stands open before anybody doubts that it will be closed
_LONGEST_ROW = 2**20  # bytes after an open quote from which on it is taken for a fault, whatever they are


class GrowingFile:
    """A long table or a verl dump in one file, of the format "csv", "jsonl" or "verl".

    Each piece is read as a file of its own, with the header before it, so that formats, hints and errors are those of
    `kaestat.read_log`. A row is read once its line break exists. Unreadable rows are skipped, and so is a line with a
    quote that stays open while the file grows.
    """

    def __init__(self, path: Path, format: str, hints: dict[str, Any]):
        self._path, self._format, self._hints = path, format, hints
        self._anew = False
        self._forget()

    def _forget(self) -> None:
        self._offset, self._lines = 0, 0
        self._header = self._parted = b""
        self._first = self._last = b""
        self._open: set[int] = set()  # sizes of the file at which the next row had a quote that was not closed

    def state(self) -> dict[str, Any]:
        """The reading position as plain data."""
        texts = {"header": self._header, "parted": self._parted, "first": self._first, "last": self._last}
        return {"offset": self._offset, "lines": self._lines} | {name: text.hex() for name, text in texts.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a position in `state`."""
        self._forget()
        self._offset, self._lines = int(state["offset"]), int(state["lines"])
        names = ("header", "parted", "first", "last")
        self._header, self._parted, self._first, self._last = (bytes.fromhex(state[name]) for name in names)

    def read(self, *, last: bool = False) -> Reading:
        """The new rows; at the ``last`` look also a row without a line break, if possible.

        A ValueError or TypeError for a reason other than faulty rows (a column is missing, a hint unknown), and an
        OSError if the file cannot be opened, or there is no space for a temporary one.
        """
        reading = self._read(last=last)  # if this fails, the next look still reports the restart
        anew, self._anew = self._anew, False
        return replace(reading, anew=anew)

    def _read(self, *, last: bool) -> Reading:
        if self._is_another():
            self._anew = True
            self._forget()
        data, more = self._new_bytes()
        if self._format == "csv" and not self._header:
            cut = data.find(b"\n") + 1
            if not cut:
                return Reading(waiting=f"{self._path}: has no header line yet.")
            self._header = data[:cut]
            self._take(data[:cut])
            data = data[cut:]
        whole = self._rows().whole(data)
        rows, rest = data[:whole], data[whole:]
        if rows.strip():
            return self._taken(rows, more=more or (last and bool(rest.strip())))
        if b"\n" in rest.strip(b"\r\n") and not more:
            return self._unclosed(rest, last=last)
        if not (last and rest.strip()):
            return Reading(more=more)
        try:
            log = self._rows().parsed(rest)
        except ValueError as error:
            told = str(error).partition(": ")[2]
            return Reading(waiting=f"{self._path}: the last row was left out ({told.rstrip('.')}).")
        self._take(rest)
        return Reading(log)

    def _taken(self, rows: bytes, *, more: bool) -> Reading:
        """The valid ones of some rows, which are done with."""
        found = self._rows().read(rows, self._lines + 1)
        self._take(rows)
        return Reading(found.log, more=more, left_out=found.left_out, first=found.first)

    def _unclosed(self, rest: bytes, *, last: bool) -> Reading:
        """What to do about a quote that is open at the end: wait, and then do without its line."""
        self._open.add(self._offset + len(rest))
        line = self._lines + 1
        fault = len(rest) > _LONGEST_ROW or self._rows().swallows_rows(rest)
        if not (last or (fault and len(self._open) >= _PATIENCE)):
            return Reading(waiting=f"{self._path}, line {line}: a quote is not closed; waits for its end.")
        self._take(rest[: rest.find(b"\n") + 1])
        first = f"line {line}: a quote is never closed, or a text holds a quote that is not doubled"
        return Reading(more=True, left_out=1, first=first)

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
            while len(data) % CHUNK == 0 and data and not self._rows().whole(data):
                further = file.read(CHUNK)
                if not further:
                    break
                data += further
            return data, bool(file.read(1))

    def _rows(self) -> TextRows:
        if self._format == "csv" and not self._parted:
            self._parted = delimiter(self._path, errors="replace").encode()  # a row may not be valid UTF-8
        return TextRows(self._path.name, self._format, self._hints, self._header, self._parted)

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._first = (self._first + data)[:_WITNESS] if len(self._first) < _WITNESS else self._first
        self._last = (self._last + data)[-_WITNESS:]
        self._offset += len(data)
        self._lines += data.count(b"\n")
        self._open = set()
