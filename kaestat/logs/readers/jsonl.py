"""JSONL files: one JSON object per line and completion."""

import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kaestat.logs.readers.text_file import has_suffix, lines_of, text_file
from kaestat.logs.table import InvalidRows, Table

_DECODER = json.JSONDecoder()


def recognises(path: Path) -> bool:
    """Whether the path has the name of a JSONL file."""
    return path.is_file() and has_suffix(path, ".jsonl", ".ndjson")


def column_names(path: Path) -> list[str]:
    """Keys of the first row; a ValueError if the file is empty or its first line is not a JSON object."""
    for _, row in _rows(path):
        return list(row)
    raise ValueError(f"{path}: the file is empty.")


def read_table(path: Path, names: Sequence[str], *, labels: Sequence[str] = ()) -> Table:
    """Some keys of every row; a ValueError if a line is cut off or is not a JSON object, or a row lacks a key."""
    columns: dict[str, list[Any]] = {name: [] for name in names}
    lines = array("q")
    same: dict[str, str] = {}  # equal texts are one in memory
    first: set[str] = set()
    later: set[str] = set()
    lacking: list[int] = []  # rows without a key
    fault = ""  # of the first of them
    for line, row in _rows(path):
        first = first or set(row)
        if row.keys() != first:
            later |= row.keys() - first
        lines.append(line)
        for name, column in columns.items():
            if name not in row:
                fault = fault or f"line {line}: has no {name!r}, unlike the lines before; it has {', '.join(row)}."
                lacking.append(len(lines) - 1)
                break
            value = row[name]
            column.append(same.setdefault(value, value) if isinstance(value, str) else value)
    if lacking:
        raise InvalidRows(f"{path}, {fault}", lacking)
    return Table(path, columns, lambda row: f"line {lines[row]}", later=frozenset(later))


def _decoded(line: str) -> Any:
    """The same as from `json.loads`, without its checks of what nearly every line is: an object, and a line break."""
    if line.startswith("{"):
        row, end = _DECODER.raw_decode(line)
        if line[end:] in ("", "\n"):
            return row
    return json.loads(line.removeprefix("\ufeff"))  # where files were joined


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and content of every row; blank lines are skipped."""
    with text_file(path) as file:
        for number, line in enumerate(lines_of(path, file), start=1):
            if line.isspace():
                continue
            try:
                row = _decoded(line)
            except json.JSONDecodeError as error:
                if line.endswith("\n"):
                    raise InvalidRows(f"{path}, line {number}: is not valid JSON ({error}).") from error
                raise InvalidRows(
                    f"{path}, line {number}: is cut off in the middle ({error.msg}), as when a run is killed or still "
                    "writing. Remove this line, or wait until the file is complete."
                ) from error
            except (RecursionError, ValueError) as error:  # nested too deep; an integer of too many digits
                raise InvalidRows(f"{path}, line {number}: cannot be read ({error}); remove or fix it.") from error
            if not isinstance(row, dict):
                raise InvalidRows(
                    f"{path}, line {number}: must be a JSON object, got {type(row).__name__}. Write one object per "
                    'completion, {"prompt": "a", "step": 0, "reward": 1}.'
                )
            yield number, row
