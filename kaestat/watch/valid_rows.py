"""The valid rows in a part of a text file, and the faults of the others."""

import csv
import io
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kaestat.logs.readers import read_log
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.table import InvalidRows, UnevenRows

_ENOUGH_LINES, _LOOKED_AT = 8, 200  # after an open quote, to tell rows from a text
_PROBES = 20  # rows that are tried before a log is refused as a whole
_PLACE = re.compile(r"^.*?, (?:line|data row) \d+: |^.*?: (?=is )", re.DOTALL)


@dataclass(frozen=True)
class Record:
    """A row of the file."""

    text: bytes  # With its line break
    line: int  # Line on which it begins, from 1


@dataclass(frozen=True, eq=False)
class ValidRows:
    """The rows that could be read."""

    log: RewardLog | None  # None if no row is valid
    left_out: int = 0  # Number of rows that are not valid
    first: str = ""  # Line of the first of them, and its fault: ``"line 7: reward is 'much'; ..."``


@dataclass(frozen=True, eq=False)
class TextRows:
    """The rules to split and read the rows of a CSV or JSONL file.

    The ending of ``name`` gives the field separator; ``hints`` are as for `kaestat.read_log`. ``header`` is the first
    line of a CSV file, ``parted`` its field separator; both are empty for others.
    """

    name: str
    format: str
    hints: dict[str, Any]
    header: bytes = b""
    parted: bytes = b""

    def whole(self, data: bytes) -> int:
        """Length of the complete rows."""
        return self._masked(data)[0].rfind(b"\n") + 1

    def records(self, data: bytes, line: int) -> tuple[list[Record], list[Record]]:
        """The rows of complete data that begins at a line start, and those whose quote is never closed.

        Blank rows are left out.
        """
        rows: list[Record] = []
        unclosed: list[Record] = []
        (masked, faults), begin = self._masked(data), 0
        while begin < len(data):
            end = masked.find(b"\n", begin) + 1 or len(data)
            if data[begin:end].strip():
                (unclosed if begin in faults else rows).append(Record(data[begin:end], line))
            line += data.count(b"\n", begin, end)
            begin = end
        return rows, unclosed

    def read(self, data: bytes, line: int) -> ValidRows:
        """The valid rows of complete data that begins at a line start.

        A ValueError or TypeError for a fault other than invalid rows (a column is missing, a hint unknown), and an
        OSError if the piece cannot be written to a temporary folder.
        """
        if not self._masked(data)[1]:
            try:
                return ValidRows(self.parsed(data))
            except UnevenRows:
                raise
            except InvalidRows:
                pass
            except ValueError:  # a first row without a key that the others have; or a log without it
                rows, _ = self.records(data, line)
                some = rows[:: max(1, len(rows) // _PROBES)]
                if self.format == "csv" or not any(self._is_valid(row) for row in some):
                    raise
        rows, unclosed = self.records(data, line)
        valid, left = self._parted(rows)
        left += unclosed
        log = self.parsed(b"".join(record.text for record in valid)) if valid else None
        if not left:
            return ValidRows(log)
        first = min(left, key=lambda record: record.line)
        return ValidRows(log, len(left), f"line {first.line}: {self._reason(first)}")

    def parsed(self, rows: bytes) -> RewardLog:
        """The log of some rows; errors as `read`, and if a row is invalid."""
        with tempfile.TemporaryDirectory() as folder:
            piece = Path(folder) / self.name
            piece.write_bytes(self.header + rows)
            try:
                return read_log(piece, format=self.format, **self.hints)
            except ValueError as error:
                error.args = (str(error).replace(str(piece), self.name),)
                raise

    def _parted(self, records: list[Record]) -> tuple[list[Record], list[Record]]:
        """Valid rows and the others: those that the error names are set aside, else halves are tried."""
        left: list[Record] = []
        while records:
            try:
                self.parsed(b"".join(record.text for record in records))
            except UnevenRows:  # halves would be valid, down to single rows
                raise
            except ValueError as error:
                named = error.rows if isinstance(error, InvalidRows) else None
                bad = set(named or ()) & set(range(len(records)))
                if not bad and len(records) > 1:
                    middle = len(records) // 2
                    (good, others), (more, further) = map(self._parted, (records[:middle], records[middle:]))
                    return good + more, left + others + further
                left += [record for at, record in enumerate(records) if at in (bad or {0})]
                records = [record for at, record in enumerate(records) if at not in (bad or {0})]
            else:
                break
        return records, left

    def swallows_rows(self, rest: bytes) -> bool:
        """Whether the lines after an open quote look like rows: most have as many fields as the header."""
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

    def _is_valid(self, record: Record) -> bool:
        try:
            self.parsed(record.text)
        except ValueError:
            return False
        return True

    def _reason(self, record: Record) -> str:
        try:
            self.parsed(record.text)
        except (ValueError, TypeError) as error:
            return _PLACE.sub("", str(error))
        return "does not go with the rows before it"

    def _masked(self, data: bytes) -> tuple[bytes, set[int]]:
        """The data, with other bytes for texts in quotes, and where lines begin whose quote is never closed.

        A quoted text may hold line breaks, and an unclosed one reaches to the end: neither ends a row. But if a row
        of several lines does not have the header's fields, its quote was never closed, and it contains the
        rows up to the next quote. Its first line is then one row, and the next line begins another.
        """
        if self.format != "csv" or b'"' not in data:
            return data, set()
        quoted = re.compile(rb'(?:^|(?<=[\n%b]))"[^"]*+(?>(?:""[^"]*+)*)"?' % re.escape(self.parted))
        done, begin = b"", 0
        faults: set[int] = set()
        while True:
            rest = data[begin:]
            masked = quoted.sub(lambda field: b"x" * len(field[0]), rest)
            fault = self._first_fault(quoted, rest, masked)
            if fault is None:
                return done + masked, faults
            faults.add(begin + fault)
            cut = rest.find(b"\n", fault) + 1
            done, begin = done + masked[:fault] + rest[fault:cut], begin + cut

    def _first_fault(self, quoted: re.Pattern[bytes], data: bytes, masked: bytes) -> int | None:
        """Where the first row of several lines begins that has not the header's fields."""
        n_fields, behind = self._n_fields(self.header), 0
        for field in quoted.finditer(data):
            end = masked.find(b"\n", field.end()) + 1
            if field.start() < behind or b"\n" not in field[0]:
                continue
            if not end:  # the last row, which may go on
                return None
            begin, behind = masked.rfind(b"\n", 0, field.start()) + 1, end
            if self._n_fields(data[begin:end]) != n_fields:
                return begin
        return None
