"""Parquet files, read with pyarrow (the extra ``kaestat[parquet]``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kaestat.logs.labels import Labels
from kaestat.logs.readers.text_file import has_suffix
from kaestat.logs.table import Table, code_labels

if TYPE_CHECKING:
    import pyarrow

_BATCH = 50_000  # conversations that are in memory as Python's own at once


def recognises(path: Path) -> bool:
    """Whether the path has the name of a Parquet file."""
    return path.is_file() and has_suffix(path, ".parquet")


def column_names(path: Path) -> list[str]:
    """Names of the columns, and of scores within one, such as ``reward.accuracy``."""
    names: list[str] = []
    for field in load(path, columns=()).schema:
        inner = [each for each in field.type] if _is_scores(field.type) else []
        names += [f"{field.name}.{each.name}" for each in inner] or [field.name]
    return names


def read_table(path: Path, names: Sequence[str], *, labels: Sequence[str] = ()) -> Table:
    """Some columns of the file; those in ``labels`` in coded form, but for lists of prompts, which will be split."""
    columns: dict[str, Any] = {}
    lists = {field.name for field in load(path, columns=()).schema if _is_list(field.type)}
    if lists & (set(names) - set(labels)):
        labels = [name for name in labels if name not in lists]
    for name in names:  # one at a time: Arrow's memory is freed before the next
        columns |= as_table(path, load(path, columns=[name], labels=labels), [name], labels=labels).columns
    return Table(path, columns, _row)


def as_table(path: Path, content: pyarrow.Table, names: Sequence[str], *, labels: Sequence[str] = ()) -> Table:
    """Some columns of the result of `load`."""
    if content.num_rows == 0:
        raise ValueError(f"{path}: has columns but no rows.")
    try:
        columns = {name: (_coded if name in labels else _values)(content.column(name)) for name in names}
    except (ValueError, OverflowError) as error:  # text that is not UTF-8, a date beyond Python's; Arrow's own errors
        raise ValueError(
            f"{path}: has content that cannot be read ({error}); it was altered. Copy it again."
        ) from error
    return Table(path, columns, _row)


def load(path: Path, columns: Sequence[str] | None = None, *, labels: Sequence[str] = ()) -> pyarrow.Table:
    """The file as an Arrow table with all or the named columns, those in ``labels`` coded; no rows without a name."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{path}: reading Parquet needs pyarrow; run pip install 'kaestat[parquet]'.") from error
    try:
        metadata = pyarrow.parquet.read_metadata(path)
        if columns is not None and not columns:
            return metadata.schema.to_arrow_schema().empty_table()
        flat = {metadata.schema.column(k).path for k in range(metadata.num_columns)}
        with pyarrow.parquet.ParquetFile(path, metadata=metadata, read_dictionary=sorted(flat & set(labels))) as file:
            content = file.read(columns=None if columns is None else list(columns))
            return content if columns is None or set(columns) <= set(content.column_names) else content.flatten()
    except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: names that are not UTF-8
        raise ValueError(
            f"{path}: is not a complete Parquet file ({error}); it was cut short or is something else. Copy it again."
        ) from error


def _is_list(kind: pyarrow.DataType) -> bool:
    """Whether the type is a list, but not of messages: a conversation is one prompt."""
    import pyarrow

    types = pyarrow.types
    return types.is_nested(kind) and hasattr(kind, "value_type") and not types.is_struct(kind.value_type)


def _is_scores(kind: pyarrow.DataType) -> bool:
    """Whether the type is a struct of numbers."""
    import pyarrow

    types = pyarrow.types
    return types.is_struct(kind) and all(types.is_primitive(each.type) or types.is_null(each.type) for each in kind)


def _row(row: int) -> str:
    return f"row {row + 1}"


def _values(column: pyarrow.ChunkedArray) -> np.ndarray | list[Any]:
    """Numbers as an array, NaN where one is missing; anything else as Python's own."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
        return column.to_numpy()
    if pyarrow.types.is_boolean(kind):
        return column.cast(pyarrow.uint8()).to_numpy()
    return column.to_pylist()


def _coded(column: pyarrow.ChunkedArray) -> Labels:
    """Codes into the distinct values; only these become Python objects, not the rows."""
    import pyarrow

    whole = pyarrow.types.is_nested(column.type) or isinstance(column.type, pyarrow.BaseExtensionType)
    parts = []
    for chunk in column.chunks:
        if whole:  # conversations, UUIDs: Arrow knows no dictionary of these
            parts += [code_labels(chunk.slice(start, _BATCH).to_pylist()) for start in range(0, len(chunk), _BATCH)]
            continue
        coded = chunk if pyarrow.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        codes = coded.indices.cast(pyarrow.int32()).fill_null(-1).to_numpy(zero_copy_only=False)
        parts.append(Labels.of_coded(codes + 1, [None, *coded.dictionary.to_pylist()]))
    return Labels.joined(parts)
