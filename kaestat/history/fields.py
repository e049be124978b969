"""The columns of a history, and the checks of a state file's contents."""

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from kaestat.core.checks import MAX_STEP, check_column
from kaestat.core.storage import decode_keys

PLAIN_FIELDS = ("step", "count", "total", "total_sq")
WEIGHTED_FIELDS = (
    "weight",
    "weight_sq",
    "weighted_total",
    "weighted_total_sq",
    "weight_sq_total",
    "weight_sq_total_sq",
)
OF_REWARDS = (  # sums of a mass, of mass times reward, and of mass times squared reward
    ("count", "total", "total_sq"),
    ("weight", "weighted_total", "weighted_total_sq"),
    ("weight_sq", "weight_sq_total", "weight_sq_total_sq"),
)


def about(sums: dict[str, np.ndarray], center: float) -> dict[str, np.ndarray]:
    """The same sums of rewards less a number."""
    moved = dict(sums)
    for mass, total, squares in OF_REWARDS if center else ():
        if total in sums:
            moved[total] = sums[total] - center * sums[mass]
            moved[squares] = sums[squares] - center * (sums[total] + moved[total])
    return moved


def stored_center(center: Any) -> float:
    """What the sums of a state are relative to; a ValueError if it is no finite number."""
    if type(center) is not float or not math.isfinite(center):
        raise ValueError(f"center must be a finite number, got {center!r}.")
    return center


def stored_step(step: Any) -> int:
    """The last step of a state, -1 before the first; a ValueError if it is invalid."""
    if type(step) is not int or not -1 <= step <= MAX_STEP:
        raise ValueError(f"state: last_step must be a whole number from -1 to {MAX_STEP}, got {step!r}.")
    return step


def checked_sums(sums: dict[str, Any], size: int, *, least: int = 0) -> dict[str, np.ndarray]:
    """Sums over visits, one entry for each of ``size`` keys; an error names those that are wrong.

    Counts are whole numbers of at least ``least``.
    """
    columns = {name: check_column(name, values, size) for name, values in sums.items()}
    for name, column in columns.items():
        if not np.isfinite(column).all():
            raise ValueError(f"{name} must be finite.")
    count = columns["count"]
    if not ((count >= least) & (count == np.floor(count)) & (count <= MAX_STEP)).all():
        raise ValueError(f"count must hold whole numbers of completions, {least} or more.")
    return columns


def stored_columns(state: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[Hashable, int], int]:
    """Columns of a stored history, the row of each prompt (counted from 1), and the last step; or a ValueError."""
    keys, last_step, shape = decode_keys(state["keys"]), stored_step(state["last_step"]), state["fields"]["step"].shape
    row = dict(zip(keys, range(1, len(keys) + 1), strict=True))
    sums = {name: check_column(name, field.ravel()).reshape(shape) for name, field in state["fields"].items()}
    step, count = sums["step"], sums["count"]
    whole = (step == np.floor(step)) & (count == np.floor(count)) & (count >= 0) & (count <= MAX_STEP)
    past = (step >= -MAX_STEP) & (step <= np.where(count > 0, last_step, MAX_STEP))  # a prior may lie before step 0
    if not (whole & past).all() or not all(np.isfinite(field).all() for field in sums.values()):
        raise ValueError("state: the history's steps and counts are not whole, or sums not finite; it is corrupted.")
    if shape[0] != len(keys) or len(row) != len(keys) or len(shape) != 2 or shape[1] < 1:
        raise ValueError("state: the fields of the history do not fit its keys; the state is corrupted.")
    return {name: field.astype(dtype_of(name)) for name, field in sums.items()}, row, last_step


def stored_numbers(numbers: Any, size: int) -> np.ndarray:
    """The numbers kept for each prompt in addition to its visits; None for none."""
    if numbers is None:
        return np.zeros((size, 0), dtype=np.float32)
    if numbers.ndim != 2 or len(numbers) != size or numbers.dtype != np.float32 or not np.isfinite(numbers).all():
        raise ValueError("state: the numbers kept for each prompt must be finite and fit its keys; it is corrupted.")
    return numbers


def dtype_of(name: str) -> np.dtype:
    """Type of a column."""
    return np.dtype(np.int64 if name == "step" else np.float64)
