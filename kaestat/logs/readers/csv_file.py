"""CSV files: a header, then one row per completion; fields separated by commas, tabs, semicolons or bars."""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.logs.labels import Labels
from kaestat.logs.readers.text_file import has_suffix, text_file
from kaestat.logs.table import Table

_DELIMITERS = ("\t", ";", "|", ",")
_FEWEST_COLUMNS = 3  # prompt, step, reward
_LONGEST_FIELD = 2**26  # characters; Python's own limit is shorter than completions
_AT_ONCE = 1000  # rows in memory with all their fields, completions too
_CHUNK_ROWS = 200 * _AT_ONCE  # texts in memory before they become numbers and codes
_GROUPED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+\s*")  # may be whole, with points between thousands


def recognises(path: Path) -> bool:
    """Whether the path has the name of a CSV file."""
    return path.is_file() and has_suffix(path, ".csv", ".tsv")


def column_names(path: Path) -> list[str]:
    """The names in the header; a ValueError if the file is empty."""
    return _first_rows(path, delimiter(path))[0]


def delimiter(path: Path) -> str:
    """The field separator: comma or tab, as the name says, unless only another one gives the required columns."""
    own = "\t" if has_suffix(path, ".tsv") else ","
    if len(_first_rows(path, own)[0]) >= _FEWEST_COLUMNS:
        return own
    widths = {}
    for other in _DELIMITERS:
        header, *row = _first_rows(path, other)
        if len(header) >= _FEWEST_COLUMNS and all(len(fields) == len(header) for fields in row):
            widths[other] = len(header)
    return max(widths, key=widths.__getitem__, default=own)


def read_table(path: Path, names: Sequence[str], *, labels: Sequence[str] = ()) -> Table:
    """Some columns of the file; columns in ``labels`` as text, character for character."""
    if not all(name.strip() for name in names):
        raise ValueError(f"{path}: a column without a name cannot be read; name it in the file's first line.")
    parted = delimiter(path)
    chunks: dict[str, list[Any]] = {name: [] for name in names}
    texts: dict[str, list[str]] = {name: [] for name in names}

    def convert() -> None:
        for name, column in texts.items():
            chunks[name].append(Labels.of(column) if name in labels else _numbers(f"{path}: {name}", column, parted))
            column.clear()

    with _reader(path, parted, strict=True) as reader:
        rows, n_rows = filter(None, reader), 0
        header = next(rows)
        taken = [(texts[name], header.index(name)) for name in names]
        while batch := list(islice(rows, _AT_ONCE)):
            if max(map(len, batch)) > len(header):
                far = next(k for k, row in enumerate(batch) if len(row) > len(header))
                raise ValueError(
                    f"{path}, line {_line(path, n_rows + far, parted)}: has {len(batch[far])} fields, but the header "
                    f"has {len(header)}; put texts that hold commas in quotes."
                )
            for column, at in taken:
                column += [row[at] if at < len(row) else "" for row in batch]
            n_rows += len(batch)
            if n_rows % _CHUNK_ROWS == 0:
                convert()
    if not n_rows:
        raise ValueError(f"{path}: has a header but no rows.")
    convert()
    columns = {name: Labels.joined(parts) if name in labels else _joined(parts) for name, parts in chunks.items()}
    return Table(path, columns, lambda row: f"line {_line(path, row, parted)}")


def _numbers(what: str, texts: list[str], parted: str) -> np.ndarray | list[str]:
    """Texts as numbers if all are; beside semicolons commas are decimal, and points must not part thousands."""
    pointed = {text for text in texts if "." in text} if parted == ";" else set()
    if pointed and all(map(_GROUPED.fullmatch, pointed)):
        raise ValueError(
            f"{what} {min(pointed)!r} may be a thousand or more, or a decimal number; write numbers without points "
            "between thousands, and decimals as 1,5 or 1.5."
        )
    texts = [text.replace(",", ".") for text in texts] if parted == ";" else list(texts)
    with suppress(ValueError):
        return np.array(list(map(float, texts)))
    return texts


def _joined(parts: list[Any]) -> Any:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return [value for part in parts for value in (part.tolist() if isinstance(part, np.ndarray) else part)]


def _first_rows(path: Path, parted: str) -> list[list[str]]:
    """The header and the first row, if there is one; a ValueError if the file is empty."""
    with _reader(path, parted) as reader:
        first = list(islice(filter(None, reader), 2))
    if not first:
        raise ValueError(f"{path}: the file is empty.")
    return first


def _line(path: Path, row: int, parted: str) -> int:
    """Line on which a row ends; quoted texts may hold line breaks, so rows must be counted."""
    with _reader(path, parted) as reader:
        next(islice(filter(None, reader), row + 1, None))
        return int(reader.line_num)


@contextmanager
def _reader(path: Path, parted: str, *, strict: bool = False) -> Iterator[Any]:
    """A `csv.reader` of the file; ``strict`` refuses quotes that are never closed or not doubled."""
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        with text_file(path) as file:
            lines = (line.removeprefix("\ufeff") for line in file)  # a mark stands where files were joined
            yield csv.reader(lines, delimiter=parted, strict=strict)
    except csv.Error as error:
        raise ValueError(
            f"{path}: is not proper CSV ({error}); a quote is never closed: the file was cut short, or a text contains "
            "a quote that is not doubled."
        ) from error
    finally:
        csv.field_size_limit(limit)
