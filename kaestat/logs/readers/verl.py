"""verl's rollout dump, ``trainer.rollout_data_dir``: ``{step}.jsonl`` files with ``input``, ``score``, ``uid``, ..."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.core.checks import MAX_STEP
from kaestat.logs.columns import choose_columns, refuse_missing_column
from kaestat.logs.readers import json_file
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.table import Table

_OWN = {"prompt": "input", "reward": "score"}
_COLUMNS = {"input", "output", "score"}
# Rows that fill up the batch, with reward 0; and further outputs of a rollout, each with the reward of the whole.
_NO_ROLLOUT = re.compile(r"pad[0-9a-f]{32}_\d+_\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_\d+_[1-9]\d*")


def recognises(path: Path) -> bool:
    """Whether the path is a folder of numbered JSONL files, or one such file with verl's columns."""
    if path.is_dir():
        return bool(numbered(path))
    return json_file.is_lines(path) and _COLUMNS <= set(json_file.LINES.column_names(path))


def read_verl(
    path: Path,
    *,
    prompt: str | None = None,
    reward: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    length: str | None = None,
    importance: str | None = None,
    missing: str = "drop",
) -> RewardLog:
    """The log in a dump, or in one file of it; other files in the folder are ignored.

    Hints name keys to use instead of ``input`` and ``score``. Rows of one prompt in a step are one group unless
    ``group`` tells them apart. Padding and the further outputs of a rollout, which repeat its reward, are left out.
    """
    files = numbered(path) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path}: no file named after its step (1.jsonl, 2.jsonl, ...) is in this folder.")
    hints = {"prompt": prompt, "reward": reward, "weight": weight, "length": length, "importance": importance}
    hints |= {} if group is None else {"group": group}
    names = choose_columns(path, json_file.LINES.column_names(files[0]), hints, _OWN)
    table = Table.joined(path, [_read_file(file, names) for file in files])
    return RewardLog.of_table(table, names | {"step": "step"}, missing)


def numbered(folder: Path) -> list[Path]:
    """The files of a dump, in the order of their steps."""
    return sorted((f for f in folder.glob("*.jsonl") if re.fullmatch(r"\d+", f.stem)), key=lambda f: int(f.stem))


def _read_file(path: Path, names: Mapping[str, str]) -> Table:
    """The rows of one file, without padding and further outputs."""
    columns_of_file = json_file.LINES.column_names(path)
    for part, name in names.items():
        refuse_missing_column(path, name, part, columns_of_file)
    ids = [names[part] for part in ("prompt", "group") if part in names]
    further = [name for name in ("step", "uid") if name in columns_of_file]
    table = json_file.LINES.read_table(path, list(dict.fromkeys([*names.values(), *further])), labels=ids)
    columns = {name: table.coded(name) if name in ids else table.columns[name] for name in names.values()}
    columns["step"] = table.columns["step"] if "step" in columns_of_file else [_step_of(path)] * len(table)
    uids: Any = table.columns.get("uid", [""] * len(table))
    rollout = [not _NO_ROLLOUT.fullmatch(str(uid)) for uid in uids]
    return replace(table, columns=columns).rows(np.array(rollout, dtype=bool))


def _step_of(path: Path) -> int:
    if not re.fullmatch(r"\d+", path.stem) or len(path.stem) > 10 or int(path.stem) > MAX_STEP:
        raise ValueError(
            f"{path}: its rows have no 'step' and its name is not a step from 0 to {MAX_STEP}; name it after its step."
        )
    return int(path.stem)
