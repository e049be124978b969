"""Late visits: they are added to existing columns of a history, or become new columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np

from kaestat.core.arrays import Visits

PER_PROMPT = ("lag", "state")  # of `Visits`: no sums


def in_rounds(row: np.ndarray, step: np.ndarray) -> Iterator[np.ndarray]:
    """Positions of visits in rounds, with at most one visit of a row per round, each row's in the order of time.

    Parameters
    ----------
    row, step : ndarray of int, shape (K,)
        No two visits agree in both.
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
    """Add one visit to each of some rows of right-aligned columns, in place.

    Parameters
    ----------
    columns : dict of ndarray, shape (P, V) each
        ``step``, and the columns of ``sums``.
    row, place : ndarray of int, shape (K,)
        Distinct rows, and the present or future column of each visit.
    new : ndarray of bool, shape (K,)
        Whether the visit is new: older visits then move one column to the left, and the one in the first column is
        dropped.
    step : ndarray of int, shape (K,)
    sums : dict of ndarray, shape (K,) each
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
    """Which visits are those of the given prompts at the given lags; shape (P, V).

    Parameters
    ----------
    lags : ndarray, shape (P, V)
        Whole numbers.
    prompt, lag : ndarray of int, shape (K,)
        Positions of prompts, and lags.
    """
    mask = np.zeros(lags.shape, dtype=bool)
    which, column = np.nonzero(lags[prompt] == lag[:, None])
    mask[prompt[which], column] = True
    return mask


def newest_of(chosen: np.ndarray, most: int) -> np.ndarray:
    """The last ``most`` of the chosen entries of each row; Booleans of shape (P, V)."""
    return chosen & (np.cumsum(chosen[:, ::-1], axis=1)[:, ::-1] <= most)


def hidden(visits: Visits, kept: np.ndarray) -> Visits:
    """The visits, with all but some turned into padding; the same object if nothing is to be hidden.

    Parameters
    ----------
    visits : Visits
        NumPy arrays of shape (P, V).
    kept : ndarray of bool, shape (P, V)
    """
    if (kept | (visits.count <= 0)).all():
        return visits
    held = {field.name: getattr(visits, field.name) for field in fields(visits)}
    sums = {name: array * kept for name, array in held.items() if array is not None and name not in PER_PROMPT}
    return replace(visits, lag=np.where(kept, visits.lag, 0.0), **sums)
