"""JSON files that hold a whole table: a list of records, or the table that Weights & Biases exports.

A list of records is ``[{"prompt": "a", "step": 0, "reward": 1}, ...]``. The file of a ``wandb.Table`` is
``{"columns": ["prompt", "step", "reward"], "data": [["a", 0, 1], ...]}``, and may have more keys.
"""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kaestat.logs.readers.text_file import has_suffix, text_file, whole_text
from kaestat.logs.table import Table

_START = re.compile(r'\s*(\[|\{.*?"columns"\s*:\s*\[\s*")', re.DOTALL)  # accuracies have numbers in their lists
_LOOKED_AT = 2**16  # characters


def recognises(path: Path) -> bool:
    """Whether the path is a JSON file that begins like such a table."""
    if not (path.is_file() and has_suffix(path, ".json")):
        return False
    with text_file(path) as file:
        return bool(_START.match(file.read(_LOOKED_AT)))


def column_names(path: Path) -> list[str]:
    """Keys of the first record, or names of the columns.

    A ValueError if the file is cut short, is something else, or has no rows.
    """
    return _content(path, path.stat().st_mtime_ns)[0]


def read_table(path: Path, names: Sequence[str], *, labels: Sequence[str] = ()) -> Table:
    """Some columns of the table; a ValueError as in `column_names`, or if a record lacks one of the keys."""
    found, rows = _content(path, path.stat().st_mtime_ns)
    _content.cache_clear()
    if isinstance(rows[0], list):
        places = [found.index(name) for name in names]
        columns = {name: [row[place] for row in rows] for name, place in zip(names, places, strict=True)}
        return Table(path, columns, lambda row: f"row {row + 1}")
    for number, row in enumerate(rows, start=1):
        for name in names:
            if name not in row:
                raise ValueError(
                    f"{path}, record {number}: has no {name!r}, unlike the first; it has {', '.join(row)}."
                )
    columns = {name: [row[name] for row in rows] for name in names}
    later = frozenset().union(*rows) - set(found)
    return Table(path, columns, lambda row: f"record {row + 1}", later=later)


@lru_cache(maxsize=1)  # the names are asked for, and then the rows
def _content(path: Path, modified: int) -> tuple[list[str], list[Any]]:
    content = load_json(path)
    if isinstance(content, dict) and isinstance(content.get("columns"), list) and isinstance(content.get("data"), list):
        names, rows = content["columns"], content["data"]
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"{path}: the names in its 'columns' must be texts, got {names!r:.200}.")
        bad = next((k for k, row in enumerate(rows) if not isinstance(row, list) or len(row) != len(names)), None)
        if bad is not None:
            raise ValueError(f"{path}, row {bad + 1}: must be a list of {len(names)} values, one for each column.")
    elif isinstance(content, list):
        rows = content
        bad = next((k for k, row in enumerate(rows) if not isinstance(row, dict)), None)
        if bad is not None:
            raise ValueError(f"{path}, record {bad + 1}: must be a JSON object, got {type(rows[bad]).__name__}.")
        names = list(rows[0]) if rows else []
    else:
        raise ValueError(f'{path}: must be a list of records, or have the lists "columns" and "data".')
    if not rows:
        raise ValueError(f"{path}: holds no rows.")
    return names, rows


def load_json(path: Path, **options: Any) -> Any:
    """The content of a whole JSON file; ``options`` go to `json.loads`.

    A ValueError if the file is empty, cut short or no JSON.
    """
    with text_file(path) as file:
        text = whole_text(file)
    if not text.strip():
        raise ValueError(f"{path}: the file is empty.")
    try:
        return json.loads(text, **options)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}, column {error.colno}: is not complete JSON ({error.msg}); it was cut short "
            "or is something else. One JSON object per line is format 'jsonl'."
        ) from error
    except RecursionError as error:
        raise ValueError(f"{path}: is nested too deep for a log ({error}).") from error
    except ValueError as error:  # an integer of too many digits
        raise ValueError(f"{path}: cannot be read ({error}).") from error
