"""Long tables: one completion per row, with columns for its prompt, step and reward."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from kaestat.logs.columns import choose_columns
from kaestat.logs.reward_log import RewardLog


def read_long(
    container: ModuleType,
    path: Path,
    *,
    prompt: str | None = None,
    step: str | None = None,
    reward: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    length: str | None = None,
    importance: str | None = None,
) -> RewardLog:
    """Read a long table.

    Parameters
    ----------
    container : module
        `csv_file`, `jsonl`, `json_table` or `parquet`: how the table is stored.
    path : Path
    prompt, step, reward, group, weight, length, importance : str, optional
        Columns; None takes the usual names (`kaestat.logs.columns.choose_columns`).

    Raises
    ------
    ValueError
        If a column is missing, ambiguous or duplicated, or a value is missing or invalid.
    """
    found = container.column_names(path)
    hints = {"prompt": prompt, "step": step, "reward": reward, "group": group}
    chosen = choose_columns(path, found, hints | {"weight": weight, "length": length, "importance": importance})
    labels = [chosen[part] for part in ("prompt", "group") if part in chosen]
    return RewardLog.of_table(container.read_table(path, list(dict.fromkeys(chosen.values())), labels=labels), chosen)
