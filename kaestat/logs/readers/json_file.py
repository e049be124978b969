"""JSON files with a row for each completion: one object per line, a list of records, or a ``wandb.Table``."""

import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kaestat.logs.columns import USUAL, plain_name, warn
from kaestat.logs.readers.text_file import has_suffix, text_file
from kaestat.logs.table import Table, code_labels

_START = re.compile(r'\s*(\[|\{.*?"columns"\s*:\s*\[\s*")', re.DOTALL)  # accuracies have numbers in their lists
_LOOKED_AT = 2**16  # characters


@dataclass(frozen=True)
class JsonRows:
    """One way of writing rows in JSON."""

    rows: Callable[[Path], Iterator[tuple[int, Mapping[str, Any]]]]  # number and content of every row
    what: str  # is numbered, for messages

    def column_names(self, path: Path) -> list[str]:
        """Names of the columns of the first row; a ValueError if the file is empty or something else."""
        return _names(next(self.rows(path))[1])

    def read_table(self, path: Path, names: Sequence[str], *, labels: Sequence[str] = ()) -> Table:
        """Some columns of every row, None where a row has no such key; columns in ``labels`` are ids."""
        columns: dict[str, Any] = {name: [] for name in names}
        numbers = array("q")
        same: dict[str, str] = {}  # equal texts are one in memory
        keys: set[str] = set()
        later: set[str] = set()
        for number, row in self.rows(path):
            if row.keys() != keys:
                keys = keys or set(row)
                later |= row.keys() - keys
            numbers.append(number)
            for name, column in columns.items():
                value = row[name] if name in row else _inner(row, name)
                column.append(same.setdefault(value, value) if isinstance(value, str) else value)
        if unread := sorted(name for name in later if plain_name(name) in USUAL):
            warn(f"{path}: {', '.join(unread)} not read, since the first {self.what} has none; write it in every one.")
        batches = any(isinstance(value, list) for name in names if name not in labels for value in columns[name])
        if not batches:  # else lists of prompts are split
            columns |= {name: code_labels(columns[name], as_text=True) for name in labels}
        return Table(path, columns, lambda row: f"{self.what} {numbers[row]}", text_labels=True)


def is_lines(path: Path) -> bool:
    """Whether the path has the name of a JSONL file."""
    return path.is_file() and has_suffix(path, ".jsonl", ".ndjson")


def is_table(path: Path) -> bool:
    """Whether the path is a JSON file that begins like a list of records or a table of wandb."""
    if not (path.is_file() and has_suffix(path, ".json")):
        return False
    with text_file(path) as file:
        return bool(_START.match(file.read(_LOOKED_AT)))


def load_json(path: Path, **options: Any) -> Any:
    """The content of a whole JSON file; a ValueError if it is no JSON or an object has a key twice."""
    with text_file(path) as file:
        text = file.read()
    if not text.strip():
        raise ValueError(f"{path}: the file is empty.")
    try:
        return json.loads(text, object_pairs_hook=_distinct, **options)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}, column {error.colno}: is not complete JSON ({error.msg}); it was cut short "
            "or is something else. One JSON object per line is format 'jsonl'."
        ) from error
    except RecursionError as error:
        raise ValueError(f"{path}: is nested too deep for a log ({error}).") from error
    except ValueError as error:  # an integer of too many digits, a key twice
        raise ValueError(f"{path}: cannot be read ({error}).") from error


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Blank lines are skipped."""
    empty = True
    with text_file(path) as file:
        for number, line in enumerate(file, start=1):
            if line.isspace():
                continue
            try:
                row = _DECODER.decode(line.removeprefix("\ufeff"))  # the mark stands where files were joined
            except json.JSONDecodeError as error:
                if line.endswith("\n"):
                    raise ValueError(f"{path}, line {number}: is not valid JSON ({error}).") from error
                raise ValueError(
                    f"{path}, line {number}: is cut off in the middle ({error.msg}), as when a run is killed or still "
                    "writing. Remove this line, or wait until the file is complete."
                ) from error
            except (RecursionError, ValueError) as error:  # too deep; an integer of too many digits; a key twice
                raise ValueError(f"{path}, line {number}: cannot be read ({error}); remove or fix it.") from error
            if not isinstance(row, dict):
                raise ValueError(
                    f"{path}, line {number}: must be a JSON object, got {type(row).__name__}. Write one object per "
                    'completion, {"prompt": "a", "step": 0, "reward": 1}.'
                )
            empty = False
            yield number, row
    if empty:
        raise ValueError(f"{path}: the file is empty.")


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = content = load_json(path)
    names = None
    if isinstance(content, dict):
        names, rows = content.get("columns"), content.get("data")
    if not isinstance(rows, list) or (rows is not content and not isinstance(names, list)):
        raise ValueError(f'{path}: must be a list of records, or have the lists "columns" and "data".')
    if names is not None and (not all(isinstance(name, str) for name in names) or len(set(names)) < len(names)):
        raise ValueError(f"{path}: the names in its 'columns' must be different texts, got {names!r:.200}.")
    wanted = "a JSON object" if names is None else f"a list of {len(names)} values, one for each column"
    if not rows:
        raise ValueError(f"{path}: holds no rows.")
    for number, row in enumerate(rows, start=1):
        if not (isinstance(row, dict) if names is None else isinstance(row, list) and len(row) == len(names)):
            raise ValueError(f"{path}, row {number}: must be {wanted}, got {type(row).__name__}.")
        yield number, row if names is None else dict(zip(names, row, strict=True))


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} comes twice; remove one")
    return content


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct)


def _names(row: Mapping[str, Any]) -> list[str]:
    """The keys, and those within a value that is an object of numbers."""
    names: list[str] = []
    for name, value in row.items():
        scores = isinstance(value, dict) and all(isinstance(each, int | float | None) for each in value.values())
        names += [f"{name}.{inner}" for inner in value] if scores else [name]
    return names


def _inner(row: Mapping[str, Any], name: str) -> Any:
    outer, _, inner = name.partition(".")
    scores = row.get(outer)
    return scores.get(inner) if isinstance(scores, dict) else None


LINES = JsonRows(_lines, "line")
TABLE = JsonRows(_records, "row")
