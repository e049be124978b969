"""The columns of a history as plain data."""

import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from kaestat.core.storage import encode_keys
from kaestat.history.columns import Columns
from kaestat.history.fields import after_empty, stored_shown, stored_state


def snapshot(columns: Columns) -> Callable[[], dict[str, Any]]:
    """A function that returns everything in the columns as of now. It encodes the ids, which takes longest."""
    row, size = columns.row, len(columns.row)
    plain: dict[str, Any] = {
        "horizon": columns.horizon,
        "last_step": columns.last_step,
        "fields": {name: field[1 : size + 1].copy() for name, field in columns.fields.items()},
    }
    if columns.max_visits < math.inf:
        plain["max_visits"] = columns.max_visits
    if columns.late is not None:
        plain |= {"late": columns.late, "shown": columns.shown}
    if columns.state.shape[1]:
        plain["state"] = columns.state[1 : size + 1].copy()

    def state() -> dict[str, Any]:
        return plain | {"keys": encode_keys(list(row)[:size])}  # ids are only ever added, and at the end

    return state


def restore(
    columns: Columns, state: dict[str, Any], fields: dict[str, np.ndarray], row: dict[Hashable, int], last_step: int
) -> None:
    """Fill empty columns with the result of `kaestat.history.fields.stored_columns`.

    Raises a ValueError if the fields are not those of the columns.
    """
    if set(fields) != set(columns.fields):
        raise ValueError("state: the fields of the history do not fit together; the state was altered.")
    columns.row = row
    for name, field in fields.items() if row else ():  # an empty array may claim any width
        columns.fields[name] = after_empty(field)
    columns.shown = stored_shown(state, columns.width)
    columns.state = stored_state(state.get("state"), len(row))
    columns.last_step = last_step
