"""The columns of a history: the sums over a visit, and the checks of a state file's contents."""

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from kaestat.core.arrays import Groups
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


def visit_sums(groups: Groups) -> dict[str, np.ndarray]:
    """The sums over each row's completions that `RewardHistory` keeps of a visit, shape (P,) each."""
    reward = groups.reward if groups.mask is None else np.where(groups.mask, groups.reward, 0.0)
    terms = {"total": reward, "total_sq": reward * reward}
    if groups.weight is not None:
        mass, carried = groups.mass, groups.carried
        terms |= {"weight": mass, "weight_sq": mass**2}
        terms |= {"weighted_total": carried, "weighted_total_sq": carried * reward}
        terms |= {"weight_sq_total": mass * carried, "weight_sq_total_sq": carried**2}
    sums = {"count": groups.count[:, 0]} | {name: np.sum(term, axis=-1) for name, term in terms.items()}
    if groups.divergence is not None:
        sums["divergence"] = groups.divergence
    return sums


def about(sums: dict[str, np.ndarray], center: float) -> dict[str, np.ndarray]:
    """The same sums of rewards less a number."""
    found = dict(sums)
    for mass, total, squares in OF_REWARDS if center else ():
        if total in sums:
            found[total] = sums[total] - center * sums[mass]
            found[squares] = sums[squares] - center * (sums[total] + found[total])
    return found


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


def checked_sums(sums: dict[str, Any], size: int) -> dict[str, np.ndarray]:
    """Sums over visits, one entry for each of ``size`` keys; an error names those that are wrong."""
    columns = {name: check_column(name, values) for name, values in sums.items()}
    for name, column in columns.items():
        if column.shape != (size,):
            raise ValueError(f"{name} must have one entry per key ({size}), got shape {column.shape}.")
        if not np.isfinite(column).all():
            raise ValueError(f"{name} must be finite.")
    count = columns["count"]
    if not ((count >= 0) & (count == np.floor(count)) & (count <= MAX_STEP)).all():
        raise ValueError("count must hold whole numbers of completions, 0 or more.")
    return columns


def stored_columns(state: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[Hashable, int], int]:
    """Columns of a stored history, the row of each prompt (counted from 1), and the last step; or a ValueError."""
    fields = {name: _stored_field(name, field) for name, field in state["fields"].items()}
    keys, last_step = decode_keys(state["keys"]), stored_step(state["last_step"])
    row = dict(zip(keys, range(1, len(keys) + 1), strict=True))
    shapes = {field.shape for field in fields.values()}
    if not {"step", "count"} <= set(fields) or len(shapes) != 1 or len(row) != len(keys):
        raise ValueError("state: the fields of the history do not fit together; the state is corrupted.")
    (shape,) = shapes
    if len(shape) != 2 or shape[0] != len(keys) or shape[1] < 1:
        raise ValueError("state: the fields of the history do not fit its keys; the state is corrupted.")
    if fields["step"].max(initial=-1, where=fields["count"] > 0) > last_step:
        raise ValueError("state: the history has visits after its last step; the state is corrupted.")
    return fields, row, last_step


def _stored_field(name: str, field: Any) -> np.ndarray:
    array = check_column(name, np.ravel(field)).reshape(np.shape(field))
    if not np.isfinite(array).all():
        raise ValueError(f"state: {name} must be finite; the state is corrupted.")
    if name in ("step", "count"):
        least = -MAX_STEP if name == "step" else 0  # a prior may lie before step 0
        if not ((array == np.floor(array)) & (array >= least) & (array <= MAX_STEP)).all():
            raise ValueError(f"state: {name} must hold whole numbers, {least} or more; the state is corrupted.")
    return array.astype(dtype_of(name))


def stored_numbers(numbers: Any, size: int) -> np.ndarray:
    """The numbers kept for each prompt in addition to its visits; none if they are absent."""
    if numbers is None:
        return np.zeros((size, 0), dtype=np.float32)
    if not isinstance(numbers, np.ndarray) or numbers.ndim != 2 or len(numbers) != size or numbers.dtype != np.float32:
        raise ValueError("state: the numbers kept for each prompt do not fit its keys; the state is corrupted.")
    if not np.isfinite(numbers).all():
        raise ValueError("state: the numbers kept for each prompt must be finite; the state is corrupted.")
    return numbers


def dtype_of(name: str) -> np.dtype:
    """Type of a column."""
    return np.dtype(np.int64 if name == "step" else np.float64)
