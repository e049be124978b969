"""CSV files: a header, then one row per completion; fields separated by commas, tabs, semicolons or bars."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from kaestat.logs.labels import Labels
from kaestat.logs.readers.text_file import has_suffix, text_file
from kaestat.logs.table import InvalidRows, Table, code_labels

if TYPE_CHECKING:
    import pandas as pd

_DELIMITERS = ("\t", ";", "|", ",")
_WHOLE = re.compile(r"\s*[+-]?\d+\s*")
_GROUPED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+\s*")
_MARK = "\ufeff"
_FEWEST_COLUMNS = 3  # prompt, step, reward
_WIDE = 1000  # columns, above which pandas is given those to keep: each of the others costs it as much as many rows
_CHUNK_ROWS = 200_000  # completions may stand in the file too; this bounds how much of them is in memory


def recognises(path: Path) -> bool:
    """Whether the path has the name of a CSV file."""
    return path.is_file() and has_suffix(path, ".csv", ".tsv")


def column_names(path: Path) -> list[str]:
    """The names in the header; a ValueError if the file is empty."""
    return _header(path, delimiter(path))


def delimiter(path: Path, errors: str = "strict") -> str:
    """The field separator: comma or tab, as the name says, unless only another one gives the required columns.

    A log has three columns or more. Another delimiter is used only if it splits the header into three or more, splits
    the first row into as many as the header, and the name's own delimiter does not. ``errors`` is what to do about
    bytes that are not UTF-8 (`text_file`).
    """
    own = "\t" if has_suffix(path, ".tsv") else ","
    if len(_header(path, own, errors)) >= _FEWEST_COLUMNS:
        return own
    widths = {}
    for other in _DELIMITERS:
        with text_file(path, errors) as file, suppress(csv.Error):
            header, *row = islice(filter(None, csv.reader(file, delimiter=other)), 2)
            if len(header) >= _FEWEST_COLUMNS and all(len(fields) == len(header) for fields in row):
                widths[other] = len(header)
    return max(widths, key=widths.__getitem__, default=own)


def read_table(path: Path, names: Sequence[str], *, labels: Sequence[str] = ()) -> Table:
    """Some columns of the file; columns in ``labels`` as text, character for character.

    A ValueError if one of them has no name in the header, a row has more fields than the header, a quote is never
    closed, or there is no row.
    """
    import pandas as pd

    if not all(name.strip() for name in names):  # pandas makes up names for these, and skips a header of blanks
        raise ValueError(f"{path}: a column without a name cannot be read; name it in the file's first line.")
    parted = delimiter(path)
    coded: dict[str, list[Labels]] = {name: [] for name in labels}
    plain: dict[str, list[pd.Series[Any]]] = {name: [] for name in names if name not in labels}
    with text_file(path) as file:
        try:
            # Else all columns are parsed although few are kept: given usecols, pandas accepts rows with too many
            # fields, and shifts them.
            kept = list(names) if _is_wide(path, parted) else None
            _check_first_row(path, parted)
            unmarked: Any = _WithoutMarks(file)
            reader = pd.read_csv(
                unmarked,
                sep=parted,
                decimal="," if parted == ";" else ".",  # that is why such files have semicolons; 0.5 is still a number
                usecols=kept,
                dtype=dict.fromkeys(labels, str),
                keep_default_na=False,
                low_memory=False,
                chunksize=_CHUNK_ROWS,
            )
            for chunk in reader:
                if not isinstance(chunk.index, pd.RangeIndex):
                    raise pd.errors.ParserError("the first rows have more fields than the header")
                for name, column in coded.items():
                    column.append(code_labels(chunk[name]))
                for name, numbers in plain.items():
                    numbers.append(chunk[name])
        except pd.errors.ParserError as error:
            open_quote = (
                "a quote is never closed: the file was cut short, or a text contains a quote that is not doubled"
            )
            remedy = open_quote if "EOF inside string" in str(error) else "put texts that hold commas in quotes"
            raise InvalidRows(f"{path}: is not proper CSV ({str(error).strip()}); {remedy}.") from error
    columns = {name: Labels.joined(parts) for name, parts in coded.items()} | {
        name: pd.concat(parts, ignore_index=True) for name, parts in plain.items()
    }
    if not all(map(len, columns.values())):
        raise ValueError(f"{path}: has a header but no rows.")
    if parted == ";":
        _check_thousands(path, {name: column for name, column in columns.items() if isinstance(column, pd.Series)})
    return Table(path, columns, lambda row: _line(path, row, parted))


def _check_thousands(path: Path, columns: dict[str, pd.Series[Any]]) -> None:
    """Raise a ValueError where 1.000 may be a thousand: beside whole numbers, or where another column has commas.

    A warning where all values of a column are like it.
    """
    commas = any(column.dtype.kind == "f" for column in columns.values())
    for name, column in columns.items():
        texts = set() if column.dtype.kind in "biuf" else {text for text in column.unique() if isinstance(text, str)}
        grouped = {text for text in texts if _GROUPED.fullmatch(text)}
        if grouped and (commas or grouped < texts) and all(map(_WHOLE.fullmatch, texts - grouped)):
            raise ValueError(
                f"{path}: {name} {min(grouped)!r} may be a thousand or more, or a decimal number; write whole numbers "
                "without points, and others alike: 1,0 or 1.0."
            )
        if grouped and grouped == texts:
            warnings.warn(
                f"{path}: {name} {min(grouped)!r} is read as a decimal number, like all of this column; if it is a "
                "thousand or more, write whole numbers without points.",
                stacklevel=4,
            )


class _WithoutMarks:
    """The text of a file, without byte order marks at the beginning of lines: they are left where files were joined."""

    def __init__(self, file: TextIO):
        self._file, self._line_begins = file, False

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def read(self, size: int = -1) -> str:
        text = self._file.read(size)
        if self._line_begins and text.startswith(_MARK):
            text = text.removeprefix(_MARK) or self._file.read(size)
        self._line_begins = text.endswith("\n")
        return text.replace("\n" + _MARK, "\n")


def _header(path: Path, parted: str, errors: str = "strict") -> list[str]:
    with text_file(path, errors) as file:
        try:
            header = next((row for row in csv.reader(file, delimiter=parted) if row), None)
        except csv.Error as error:
            raise ValueError(f"{path}: its first line is no CSV header ({error}).") from error
    if header is None:
        raise ValueError(f"{path}: the file is empty.")
    return header


def _is_wide(path: Path, parted: str) -> bool:
    """Whether only the wanted columns should be parsed; a ParserError if a row has more than the header."""
    from pandas.errors import ParserError

    width = len(_header(path, parted))
    if width <= _WIDE:
        return False
    with text_file(path) as file:
        for number, line in enumerate(file, 1):
            if '"' in line:
                rows = csv.reader(chain([line], file), delimiter=parted)
                try:
                    fields = ((number - 1 + rows.line_num, len(row)) for row in rows)
                    found = next(((n, size) for n, size in fields if size > width), None)
                except csv.Error:  # a field longer than the module's limit
                    return False
            else:
                size = line.count(parted) + 1
                found = (number, size) if size > width else None
            if found is not None:
                raise ParserError(f"Expected {width} fields in line {found[0]}, saw {found[1]}")
    return True


def _check_first_row(path: Path, parted: str) -> None:
    """Raise a ParserError if it has more fields than the header.

    pandas would make an index of them first: 150 s for 100,000 commas.
    """
    from pandas.errors import ParserError

    with text_file(path) as file, suppress(csv.Error):
        header, *row = islice(filter(None, csv.reader(file, delimiter=parted)), 2)
        if row and len(row[0]) > len(header):
            raise ParserError(f"Expected {len(header)} fields in the first row, saw {len(row[0])}")


def _line(path: Path, row: int, parted: str) -> str:
    """Line on which a row ends; quoted texts may hold line breaks, so rows must be counted."""
    try:
        with text_file(path) as file:
            rows = csv.reader(file, delimiter=parted)
            return f"line {next(islice((rows.line_num for record in rows if record), row + 1, None))}"
    except csv.Error:  # a field longer than the module's limit
        return f"data row {row + 1}"
