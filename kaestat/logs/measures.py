"""Optional data about completions in a log: weight, length, importance ratio."""

from typing import Any

import numpy as np

from kaestat.core.checks import check_column
from kaestat.logs.columns import MEASURES

MAX_MEASURE = 1e20  # products of three of them with rewards must be finite


def outside(values: np.ndarray) -> np.ndarray:
    """Which numbers cannot be a weight, length or ratio: missing, negative or too large."""
    return ~((values >= 0) & (values <= MAX_MEASURE))


def check_measures(size: int, **given: Any) -> dict[str, np.ndarray]:
    """Columns of float64, shape (N,), for those of `MEASURES` that are not None; copies."""
    columns = {name: check_column(name, given[name], size) for name in MEASURES if given.get(name) is not None}
    for name, column in columns.items():
        bad = outside(column)
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"{name} must be finite numbers from 0 to {MAX_MEASURE:g}: entry {first} is {column[first]}. Leave "
                f"such completions out, or leave {name} out."
            )
    return columns
