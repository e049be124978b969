"""The valid rows of a piece of a text file, and what is wrong with the others."""

from __future__ import annotations

import csv
import io
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kaestat.logs.readers import read_log
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.table import InvalidRows

_ENOUGH_LINES, _LOOKED_AT = 8, 200  # after an open quote, to tell rows from a text
_PLACE = re.compile(r"^.*?, (?:line|data row) \d+: |^.*?: (?=is )", re.DOTALL)


@dataclass(frozen=True)
class Record:
    """A row of the file.

    Attributes
    ----------
    text : bytes
        With its line break.
    line : int
        Line on which it begins, from 1.
    """

    text: bytes
    line: int


@dataclass(frozen=True, eq=False)
class ValidRows:
    """What could be read.

    Attributes
    ----------
    log : RewardLog or None
        None if no row is valid.
    left_out : int
        Rows that are not.
    first : str
        Line of the first of them, and what is wrong: ``"line 7: reward is 'much'; ..."``.
    """

    log: RewardLog | None
    left_out: int = 0
    first: str = ""


@dataclass(frozen=True, eq=False)
class TextRows:
    """How the rows of a CSV or JSONL file are parted and read.

    Parameters
    ----------
    name : str
        Of the file, whose ending tells what parts the fields.
    format : str
    hints : dict
        As `kaestat.read_log` takes them.
    header : bytes
        The first line of a CSV file; empty for others.
    parted : bytes
        What parts the fields of a CSV file; empty for others.
    """

    name: str
    format: str
    hints: dict[str, Any]
    header: bytes = b""
    parted: bytes = b""

    def whole(self, data: bytes) -> int:
        """Length of the rows that are complete."""
        return self._masked(data).rfind(b"\n") + 1

    def records(self, data: bytes, line: int) -> list[Record]:
        """The rows of complete data that begins on a line; blank ones are left out."""
        found, masked, begin = [], self._masked(data), 0
        while begin < len(data):
            end = masked.find(b"\n", begin) + 1 or len(data)
            if data[begin:end].strip():
                found.append(Record(data[begin:end], line))
            line += data.count(b"\n", begin, end)
            begin = end
        return found

    def read(self, data: bytes, line: int) -> ValidRows:
        """The valid rows of complete data that begins on a line.

        Raises
        ------
        ValueError, TypeError
            If the fault is not that of some rows: a column is missing, a hint unknown.
        OSError
            If the piece cannot be written to a temporary folder.
        """
        try:
            return ValidRows(self._parsed(data))
        except InvalidRows:
            pass
        valid, left = self._parted(self.records(data, line))
        first = min(left, key=lambda record: record.line)
        log = self._parsed(b"".join(record.text for record in valid)) if valid else None
        return ValidRows(log, len(left), f"line {first.line}: {self._reason(first)}")

    def _parted(self, records: list[Record]) -> tuple[list[Record], list[Record]]:
        """Valid rows and the others: those that the error names are set aside, else halves are tried."""
        left: list[Record] = []
        while records:
            try:
                self._parsed(b"".join(record.text for record in records))
            except InvalidRows as error:
                bad = set() if error.rows is None else set(error.rows) & set(range(len(records)))
                if not bad and len(records) > 1:
                    halves = [self._parted(half) for half in _halves(records)]
                    return halves[0][0] + halves[1][0], left + halves[0][1] + halves[1][1]
                more = [self._opened(records[at]) for at in sorted(bad or {0})]
                left += [bad_one for bad_one, _ in more]
                records = [record for at, record in enumerate(records) if at not in (bad or {0})]
                found = [self._parted(behind) for _, behind in more if behind]
                left += [record for _, others in found for record in others]
                records = sorted((*records, *(r for good, _ in found for r in good)), key=lambda r: r.line)
            else:
                break
        return records, left

    def _opened(self, record: Record) -> tuple[Record, list[Record]]:
        """A bad row, and the rows that an unclosed quote in it has swallowed: it has not as many fields as the header."""
        first, rest = record.text[: record.text.find(b"\n") + 1], record.text[record.text.find(b"\n") + 1 :]
        if self.format != "csv" or not rest.strip() or self._n_fields(record.text) == self._n_fields(self.header):
            return record, []
        whole = self.whole(rest)
        behind = self.records(rest[:whole], record.line + 1)
        return Record(first, record.line), behind + ([Record(rest[whole:], 0)] if rest[whole:].strip() else [])

    def swallows_rows(self, rest: bytes) -> bool:
        """Whether the lines after one with an open quote look like rows: most have as many fields as the header."""
        lines = rest.splitlines()[1:]
        n_fields = self._n_fields(self.header)
        alike = sum(self._n_fields(line) == n_fields for line in lines[-_LOOKED_AT:])
        return len(lines) >= _ENOUGH_LINES and 2 * alike > min(len(lines), _LOOKED_AT)

    def _n_fields(self, text: bytes) -> int:
        try:
            rows = list(
                csv.reader(io.StringIO(text.decode(errors="replace"), newline=""), delimiter=self.parted.decode())
            )
        except csv.Error:
            return -1
        return len(rows[0]) if len(rows) == 1 else -1

    def _reason(self, record: Record) -> str:
        try:
            self._parsed(record.text)
        except (ValueError, TypeError) as error:
            return _PLACE.sub("", str(error))
        return "does not go with the rows before it"

    def _parsed(self, rows: bytes) -> RewardLog:
        return in_temporary_file(
            self.name, self.header + rows, lambda path: read_log(path, format=self.format, **self.hints)
        )

    def _masked(self, data: bytes) -> bytes:
        if self.format != "csv" or b'"' not in data:
            return data
        # A quoted text may hold line breaks, and one that is not closed reaches to the end: neither ends a row.
        quoted = re.compile(rb'(?:^|(?<=[\n%b]))"[^"]*+(?>(?:""[^"]*+)*)"?' % re.escape(self.parted))
        return quoted.sub(lambda field: b"x" * len(field[0]), data)


def in_temporary_file(name: str, content: bytes, read: Callable[[Path], RewardLog]) -> RewardLog:
    """What a reader makes of some content in a file of that name."""
    with tempfile.TemporaryDirectory() as folder:
        piece = Path(folder) / name
        piece.write_bytes(content)
        return read(piece)


def _halves(records: list[Record]) -> tuple[list[Record], list[Record]]:
    middle = len(records) // 2
    return records[:middle], records[middle:]
