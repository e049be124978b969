"""Long tables: one completion per row, with columns for its prompt, step and reward."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from kaestat.logs.readers.table import refuse_missing_column
from kaestat.logs.reward_log import RewardLog

ALIASES = {
    "prompt": ("prompt_id", "prompt_text", "question", "question_id", "problem", "problem_id", "task_id", "input"),
    "step": ("global_step", "global_steps", "training_step", "train_step", "iteration"),
    "reward": ("rewards", "score", "correct", "is_correct"),
    "group": ("group_id", "stream", "stream_id"),
}
RANDOM_IDS = ("uid", "request_id", "uuid")


def read_long(
    container: ModuleType,
    path: Path,
    *,
    prompt: str | None = None,
    step: str | None = None,
    reward: str | None = None,
    group: str | None = None,
) -> RewardLog:
    """Read a long table.

    Parameters
    ----------
    container : module
        `csv_file`, `jsonl` or `parquet`: how the table is stored.
    path : Path
    prompt, step, reward, group : str, optional
        Columns. None takes the column of that very name, else the only one among `ALIASES`; ``group`` may be absent.
        A column ``uid`` is never taken for the prompt: frameworks draw it anew at every step.

    Raises
    ------
    ValueError
        If a column is missing, ambiguous or duplicated, or a value is missing or invalid.
    """
    found = container.column_names(path)
    hints = {"prompt": prompt, "step": step, "reward": reward, "group": group}
    chosen = {role: _column(path, role, hint, found) for role, hint in hints.items()}
    names = {role: name for role, name in chosen.items() if name is not None}
    labels = [names[role] for role in ("prompt", "group") if role in names]
    table = container.read_table(path, list(dict.fromkeys(names.values())), labels=labels)
    return RewardLog(
        table.labels(names["prompt"]),
        table.steps(names["step"]),
        table.rewards(names["reward"]),
        table.labels(names["group"]) if "group" in names else None,
    )


def _column(path: Path, role: str, hint: str | None, found: Sequence[str]) -> str | None:
    """The column that plays a role; None only for a group that is not there."""
    if hint is not None:
        refuse_missing_column(path, hint, role, found)
        return hint
    candidates = [role] if role in found else [name for name in ALIASES[role] if name in found]
    if len(candidates) > 1:
        raise ValueError(f"{path}: {role} could be {' or '.join(candidates)}; choose with {role}={candidates[0]!r}.")
    if candidates:
        refuse_missing_column(path, candidates[0], role, found)
        return candidates[0]
    if role == "group":
        return None
    known = ", ".join((role, *ALIASES[role]))
    random = [name for name in RANDOM_IDS if name in found] if role == "prompt" else []
    note = f" ({random[0]} is drawn anew at every step, so it names no prompt)" if random else ""
    raise ValueError(
        f"{path}: no {role} column; it has {', '.join(found)}{note}. Name it with {role}=, or call it one of {known}."
    )
