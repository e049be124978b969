"""Parquet files, read with pyarrow (the extra ``kaestat[parquet]``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kaestat.logs.readers.table import Table
from kaestat.logs.readers.text_file import has_suffix

if TYPE_CHECKING:
    import pyarrow


def recognises(path: Path) -> bool:
    """Whether the name says that this is a Parquet file."""
    return path.is_file() and has_suffix(path, ".parquet")


def column_names(path: Path) -> list[str]:
    """Names of the columns.

    Raises
    ------
    ImportError
        If pyarrow is missing.
    ValueError
        If the file is cut short or no Parquet.
    """
    return load(path, columns=()).schema.names


def read_table(path: Path, names: Sequence[str], *, labels: Sequence[str] = ()) -> Table:
    """Some columns of the file.

    Raises
    ------
    ImportError, ValueError
        As `column_names`, or if there is no row.
    """
    return as_table(path, load(path, columns=names), names)


def as_table(path: Path, content: pyarrow.Table, names: Sequence[str]) -> Table:
    """Some columns of what `load` returned."""
    if content.num_rows == 0:
        raise ValueError(f"{path}: has columns but no rows.")
    try:
        columns = {name: content.column(name).to_pylist() for name in names}
    except (ValueError, OverflowError) as error:  # text that is no UTF-8, a date beyond Python's; Arrow's own errors
        raise ValueError(f"{path}: holds what cannot be read ({error}); it was altered. Copy it again.") from error
    return Table(path, columns, lambda row: f"row {row + 1}")


def load(path: Path, columns: Sequence[str] | None = None) -> pyarrow.Table:
    """The file as an Arrow table: all columns, or those named; without rows if none is named."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{path}: reading Parquet needs pyarrow; run pip install 'kaestat[parquet]'.") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if columns is not None and not columns:
                return file.schema_arrow.empty_table()
            return file.read(columns=None if columns is None else list(columns))
    except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: names that are no UTF-8
        raise ValueError(
            f"{path}: is no complete Parquet file ({error}); it was cut short or is something else. Copy it again."
        ) from error
