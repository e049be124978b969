"""CSV files: a header, then one row per completion."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pandas as pd

from kaestat.logs.readers.table import Table
from kaestat.logs.readers.text_file import has_suffix, text_file

_CHUNK_ROWS = 200_000  # completions may stand in the file too; this bounds how much of them is in memory


def recognises(path: Path) -> bool:
    """Whether the name says that this is a CSV file."""
    return path.is_file() and has_suffix(path, ".csv")


def column_names(path: Path) -> list[str]:
    """The header.

    Raises
    ------
    ValueError
        If the file is empty.
    """
    with text_file(path) as file:
        try:
            header = next((row for row in csv.reader(file) if row), None)
        except csv.Error as error:
            raise ValueError(f"{path}: its first line is no CSV header ({error}).") from error
    if header is None:
        raise ValueError(f"{path}: the file is empty.")
    return header


def read_table(path: Path, names: Sequence[str], *, labels: Sequence[str] = ()) -> Table:
    """Some columns of the file; those in ``labels`` as text, character for character.

    Raises
    ------
    ValueError
        If one of them has no name in the header, a row has more fields than the header, a quote is never closed, or
        there is no row.
    """
    if not all(name.strip() for name in names):  # pandas makes up names for these, and skips a header of blanks
        raise ValueError(f"{path}: a column without a name cannot be read; name it in the file's first line.")
    chunks = []
    with text_file(path) as file:
        try:
            # All columns are parsed although few are kept: given usecols, pandas accepts rows with too many fields,
            # and shifts them.
            reader = pd.read_csv(
                file,
                dtype=dict.fromkeys(labels, str),
                keep_default_na=False,
                low_memory=False,
                chunksize=_CHUNK_ROWS,
            )
            for chunk in reader:
                if not isinstance(chunk.index, pd.RangeIndex):
                    raise pd.errors.ParserError("the first rows have more fields than the header")
                chunks.append(chunk[list(names)])
        except pd.errors.ParserError as error:
            raise ValueError(
                f"{path}: is no proper CSV ({str(error).strip()}); put texts that hold commas in quotes."
            ) from error
    table = pd.concat(chunks, ignore_index=True)
    if table.empty:
        raise ValueError(f"{path}: has a header but no rows.")
    columns = {name: table[name].tolist() if name in labels else table[name] for name in names}
    return Table(path, columns, lambda row: _line(path, row))


def _line(path: Path, row: int) -> str:
    """Line on which a row ends; quoted texts may hold line breaks, so rows must be counted."""
    try:
        with text_file(path) as file:
            rows = csv.reader(file)
            return f"line {next(islice((rows.line_num for record in rows if record), row + 1, None))}"
    except csv.Error:  # a field longer than the module's limit
        return f"data row {row + 1}"
