"""Late visits: they are added to existing columns of a history, or become new columns."""

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np

from kaestat.core.arrays import Visits

PER_PROMPT = ("lag", "state")  # of `Visits`: no sums


def in_rounds(row: np.ndarray, step: np.ndarray) -> Iterator[np.ndarray]:
    """Positions of visits in rounds, with at most one visit of a row per round, each row's in the order of time.

    No two visits agree in both ``row`` and ``step``.
    """
    if len(row) < 2 or len(np.unique(row)) == len(row):
        yield np.arange(len(row))
        return
    order = np.lexsort((step, row))
    first = np.flatnonzero(np.diff(row[order], prepend=-1))
    turn = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
    for number in range(int(turn.max()) + 1):
        yield order[turn == number]


def add_to_columns(
    columns: dict[str, np.ndarray],
    row: np.ndarray,
    place: np.ndarray,
    new: np.ndarray,
    step: np.ndarray,
    sums: dict[str, np.ndarray],
) -> None:
    """Add one visit to each of some distinct rows of right-aligned columns, (P, V), in place.

    ``columns`` has ``step`` and the keys of ``sums``; ``place`` is the present or future column of each visit. If it is
    ``new``, older visits move one column to the left, and the one in the first column is dropped.
    """
    width = columns["step"].shape[1]
    if new.all() and len(row) == len(columns["step"]) and (place == width - 1).all():
        push(columns, row, step, sums)
        return
    old, target = ~new, row[new]
    for name, sum_ in sums.items():
        column = columns[name]
        column[row[old], place[old]] += sum_[old].astype(column.dtype)
    older = np.arange(width) < place[new][:, None]
    at = np.arange(len(target)), place[new]
    for name, column in columns.items():
        taken = np.take(column, target, axis=0)
        moved = np.where(older, np.roll(taken, -1, axis=1), taken)
        moved[at] = step[new] if name == "step" else sums[name][new]
        column[target] = moved


def push(
    columns: dict[str, np.ndarray], rows: np.ndarray | slice, step: np.ndarray | int, sums: dict[str, np.ndarray]
) -> None:
    """Add the newest visit to every row of right-aligned columns, in place; ``rows`` is their order in ``sums``."""
    for name, column in columns.items():
        in_line = column.reshape(-1)  # NumPy shifts one dimension in place, and two by way of a copy
        in_line[:-1] = in_line[1:]
        column[rows, -1] = step if name == "step" else sums[name]


def named(lags: np.ndarray, prompt: np.ndarray, lag: np.ndarray) -> np.ndarray:
    """Which visits are those of the given prompts, by position, at the given whole ``lag``; shape (P, V)."""
    mask = np.zeros(lags.shape, dtype=bool)
    which, column = np.nonzero(lags[prompt] == lag[:, None])
    mask[prompt[which], column] = True
    return mask


def newest_of(chosen: np.ndarray, most: int) -> np.ndarray:
    """The last ``most`` of the chosen entries of each row; Booleans of shape (P, V)."""
    return chosen & (np.cumsum(chosen[:, ::-1], axis=1)[:, ::-1] <= most)


def hidden(visits: Visits, kept: np.ndarray) -> Visits:
    """The visits, (P, V), with all but those ``kept`` turned into padding; the same object if none is hidden."""
    if (kept | (visits.count <= 0)).all():
        return visits
    held = {field.name: getattr(visits, field.name) for field in fields(visits)}
    sums = {name: array * kept for name, array in held.items() if array is not None and name not in PER_PROMPT}
    return replace(visits, lag=np.where(kept, visits.lag, 0.0), **sums)
