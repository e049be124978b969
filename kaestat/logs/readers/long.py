"""Long tables: one completion per row, with columns for its prompt, step and reward."""

import json
import re
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.core.spelling import counted
from kaestat.logs.columns import choose_columns
from kaestat.logs.labels import Labels
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.table import Table

_TEXTS = re.compile(r"\s*\[\s*['\"]")  # begins a list of texts, of JSON or Python


def read_long(
    container: Any,  # `csv_file`, `parquet` or a `json_file.JsonRows`: how the table is stored
    path: Path,
    *,
    prompt: str | None = None,
    step: str | None = None,
    reward: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    length: str | None = None,
    importance: str | None = None,
    missing: str = "refuse",
) -> RewardLog:
    """The log in a long table; hints name its columns, None takes the usual ones (`choose_columns`)."""
    hints = {"prompt": prompt, "step": step, "reward": reward, "group": group}
    hints |= {"weight": weight, "length": length, "importance": importance}
    names = choose_columns(path, container.column_names(path), hints)
    labels = [names[part] for part in ("prompt", "group") if part in names]
    table = container.read_table(path, list(dict.fromkeys(names.values())), labels=labels)
    return RewardLog.of_table(with_one_reward_each(table, names["reward"]), names, missing)


def with_one_reward_each(table: Table, reward: str) -> Table:
    """The table with one row per reward of a list; other lists are split alike, other values repeated.

    Lists of lists, as of a whole batch, are split again. A list of messages is a conversation and stays whole.
    """
    column = table.columns[reward]
    if isinstance(column, Labels) or (hasattr(column, "dtype") and column.dtype.kind in "biuf"):
        return table
    lists = list(takewhile(lambda each: each is not None, map(_as_list, column)))
    if len(lists) < len(column) or not lists:
        return table
    as_text = any(isinstance(each, str) for each in column)
    sizes = np.array([len(each) for each in lists if each is not None])
    if not sizes.any():
        raise ValueError(f"{table.source}: holds no rewards, only empty lists of {reward}.")
    rows = np.repeat(np.arange(len(sizes)), sizes).tolist()
    columns: dict[str, Any] = {}
    for name, values in table.columns.items():
        if isinstance(values, Labels):
            if as_text and any(_TEXTS.match(str(value)) for value in values.distinct):
                row = next(row for row in range(len(values)) if _TEXTS.match(str(values[row])))
                raise ValueError(
                    f"{table.source}, {table.place(row)}: {name} is a list of texts ({values[row]!r:.60}), as {reward} "
                    "is of numbers. Write one completion per row, or batches as JSONL or Parquet."
                )
            columns[name] = values.take(np.array(rows))
            continue
        parted: list[Any] = []
        for row, value in enumerate(values):
            each = lists[row] if name == reward else _as_list(value) if as_text or not isinstance(value, str) else None
            if each is not None and name != reward and any(isinstance(entry, dict) for entry in each):
                each = None
            if each is not None and len(each) != sizes[row]:
                wrong = f"{name} has {counted(len(each), 'value')} for {counted(int(sizes[row]), 'reward')}"
                raise ValueError(
                    f"{table.source}, {table.place(row)}: {wrong}. Give one for each reward, or a single one."
                )
            parted.extend([value] * int(sizes[row]) if each is None else each)
        columns[name] = parted
    return with_one_reward_each(replace(table, columns=columns, place=lambda at: table.place(rows[at])), reward)


def _as_list(value: Any) -> list[Any] | None:
    """A list, as it is or as JSON text; None for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    return list(value) if isinstance(value, list | np.ndarray) else None
