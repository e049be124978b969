"""verl's rollout dump, ``trainer.rollout_data_dir``: a folder of ``{step}.jsonl`` files, one line per completion.

verl 0.9.1 writes ``input`` (the decoded prompt), ``output``, ``gts``, ``score`` and ``step``, then what the reward
function returned. The newer trainer adds ``uid``, the key ``{sample}_{rollout}_{output}``, whose sample is new at every
step.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.core.checks import MAX_STEP
from kaestat.logs.columns import MEASURES, choose_columns, refuse_missing_column
from kaestat.logs.labels import Labels
from kaestat.logs.readers import jsonl
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.table import Table
from kaestat.logs.ungraded import with_ungraded

_COLUMNS = {"input", "output", "score"}
# Rows that fill up the batch, with reward 0; and further outputs of a rollout, each with the reward of the whole.
_NO_ROLLOUT = re.compile(r"pad[0-9a-f]{32}_\d+_\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_\d+_[1-9]\d*")


def recognises(path: Path) -> bool:
    """Whether the path is a folder of numbered JSONL files, or one such file with verl's columns."""
    if path.is_dir():
        return bool(numbered(path))
    return jsonl.recognises(path) and _COLUMNS <= set(jsonl.column_names(path))


def read_verl(
    path: Path,
    *,
    prompt: str = "input",
    reward: str = "score",
    group: str | None = None,
    weight: str | None = None,
    length: str | None = None,
    importance: str | None = None,
) -> RewardLog:
    """The log in a dump, or in one file of it.

    The prompt is its text. Rows of one prompt in a step are one group unless ``group`` tells them apart. Padding and
    the further outputs of a rollout with several (they repeat its reward) are left out. So are completions without a
    reward (null or NaN, for completions that the reward function could not grade); a warning counts them. Raises a
    ValueError if there is no such file, one is empty or cut off, or a key is missing or invalid.

    Parameters
    ----------
    path : Path
        The folder; other files in it are ignored.
    prompt, reward : str
        Keys to use instead, for example an extra key of the reward function.
    group : str, optional
        Key that tells several groups of one prompt in a step apart.
    weight, length, importance : str, optional
        Keys, which the reward function returned; None takes the usual names that the first file has.
    """
    files = numbered(path) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path}: no file named after its step (1.jsonl, 2.jsonl, ...) is in this folder.")
    hints = {"weight": weight, "length": length, "importance": importance}
    return _read_files(files, prompt, reward, group, hints)


def read_together(files: Sequence[Path], **hints: Any) -> RewardLog:
    """The log in some files of a dump, read with the same hints; otherwise as `read_verl`."""
    given: dict[str, Any] = {"prompt": "input", "reward": "score", "group": None} | dict.fromkeys(MEASURES) | hints
    prompt, reward, group = (given.pop(name) for name in ("prompt", "reward", "group"))
    return _read_files(files, prompt, reward, group, given)


def _read_files(
    files: Sequence[Path], prompt: str, reward: str, group: str | None, hints: Mapping[str, str | None]
) -> RewardLog:
    measures = choose_columns(files[0], jsonl.column_names(files[0]), hints)
    asked = {"prompt": prompt, "reward": reward} | ({} if group is None else {"group": group}) | measures
    parts = [_read_file(file, asked) for file in files]
    prompts, steps, rewards, groups, columns, ungraded = zip(*parts, strict=True)
    if not any(map(len, rewards)):
        raise ValueError(f"{files[0]}: holds padding or completions without {reward!r} only.")
    log = RewardLog.of_labels(
        Labels.joined(prompts),
        np.concatenate(steps),
        np.concatenate(rewards),
        None if group is None else Labels.joined(groups),
        {part: np.concatenate([each[part] for each in columns]) for part in measures},
    )
    return with_ungraded(log, files, ungraded)


def numbered(folder: Path) -> list[Path]:
    """The files of a dump, in the order of their steps."""
    return sorted((f for f in folder.glob("*.jsonl") if re.fullmatch(r"\d+", f.stem)), key=lambda f: int(f.stem))


def _read_file(
    path: Path, asked: dict[str, str]
) -> tuple[Labels, np.ndarray, np.ndarray, Labels, dict[str, np.ndarray], int]:
    """Prompts, steps, rewards, groups and measures of the completions that have a reward; how many have none."""
    found = jsonl.column_names(path)
    for hint, name in asked.items():
        refuse_missing_column(path, name, hint, found)
    names = [*asked.values(), *(name for name in ("step", "uid") if name in found)]
    table = jsonl.read_table(path, list(dict.fromkeys(names)))
    if "uid" in found:
        uids: Any = table.columns["uid"]
        table = _rows(table, [not _NO_ROLLOUT.fullmatch(str(uid)) for uid in uids])
    rewards = table.rewards(asked["reward"], allow_missing=True)
    graded = ~np.isnan(rewards)
    table = _rows(table, graded)
    return (
        table.labels(asked["prompt"]),
        _steps(table, asked["reward"]),
        rewards[graded],
        table.labels(asked["group"]) if "group" in asked else Labels.of([]),
        {part: table.measures(asked[part], part) for part in MEASURES if part in asked},
        int((~graded).sum()),
    )


def _rows(table: Table, kept: Sequence[bool] | np.ndarray) -> Table:
    given: dict[str, Any] = dict(table.columns)
    rows = np.flatnonzero(kept).tolist()
    if len(rows) == len(kept):
        return table
    columns = {name: [column[row] for row in rows] for name, column in given.items()}
    origin = rows if table.origin is None else [table.origin[row] for row in rows]
    return Table(table.source, columns, lambda row: table.place(rows[row]), origin)


def _steps(table: Table, reward: str) -> np.ndarray:
    if "step" in table.columns:
        return table.steps("step")
    stem = Path(table.source).stem
    if not re.fullmatch(r"\d+", stem) or len(stem) > 10 or int(stem) > MAX_STEP:
        raise ValueError(
            f"{table.source}: its rows have no 'step' and its name is not a step from 0 to {MAX_STEP}; name it after "
            "its step."
        )
    return np.full(len(table.columns[reward]), int(stem), dtype=np.int64)
