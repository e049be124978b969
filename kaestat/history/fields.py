"""The columns of a history: the sums over a visit, and the checks of a state file's contents."""

import math
import mmap
from collections.abc import Hashable
from typing import Any

import numpy as np

from kaestat.core.arrays import Groups, row_sums
from kaestat.core.checks import MAX_STEP, check_column
from kaestat.core.storage import decode_keys

PLAIN_FIELDS = ("step", "count", "total", "total_sq")
WEIGHTED_FIELDS = ("weight", "weight_sq", "weighted_total", "weighted_total_sq")
SQUARED_FIELDS = {"weight_sq_total": "weighted_total", "weight_sq_total_sq": "weighted_total_sq"}
INTEGER_FIELDS = ("step", "count")
_MANY = 2**22  # bytes
NARROW_FIELDS = ("count", "total", "total_sq")  # of rewards 0 and 1, whole numbers as small as a group


def visit_sums(groups: Groups) -> dict[str, np.ndarray]:
    """The sums over each row's completions that `RewardHistory` keeps of a visit, shape (P,) each."""
    reward = groups.reward
    plain = reward if groups.mask is None else np.where(groups.mask, reward, 0.0)
    sums = {"count": groups.count[:, 0], "total": row_sums(plain), "total_sq": row_sums(plain * plain)}
    if groups.weight is not None:
        mass, carried = groups.mass, groups.carried
        sums |= {
            "weight": np.sum(mass, axis=-1),
            "weight_sq": np.einsum("pg,pg->p", mass, mass),
            "weighted_total": np.sum(carried, axis=-1),
            "weighted_total_sq": np.einsum("pg,pg->p", carried, reward),
            "weight_sq_total": np.einsum("pg,pg->p", mass, carried),
            "weight_sq_total_sq": np.einsum("pg,pg->p", carried, carried),
        }
    if groups.divergence is not None:
        sums["divergence"] = groups.divergence
    return sums


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
    row = _numbered(keys)
    shapes = {field.shape for field in fields.values()}
    if not {"step", "count"} <= set(fields) or len(shapes) != 1 or len(row) != len(keys):
        raise ValueError("state: the fields of the history do not fit together; the state was altered.")
    (shape,) = shapes
    if len(shape) != 2 or shape[0] != len(keys) or shape[1] < 1:
        raise ValueError("state: the fields of the history do not fit its keys; the state was altered.")
    if fields["step"].max(initial=-1, where=fields["count"] > 0) > last_step:
        raise ValueError("state: the history has visits after its last step; the state was altered.")
    return fields, row, last_step


def _numbered(keys: list[Hashable]) -> dict[Hashable, int]:
    """The number of each key, counted from 1.

    A dict with only string keys reads all of them again whenever it grows. A dict that once had another key keeps
    their hashes, which makes a million strings a third faster.
    """
    other = object()
    number: dict[Hashable, int] = {other: 0}
    number.update(zip(keys, range(1, len(keys) + 1), strict=True))
    del number[other]
    return number


def _stored_field(name: str, field: Any) -> np.ndarray:
    least = -MAX_STEP if name == "step" else 0  # a prior may lie before step 0
    if isinstance(field, np.ndarray) and field.dtype in (np.int16, np.int32):
        array, whole = field, True  # as it was kept: no copy of so many numbers is made to check them
    else:
        array = check_column(name, np.ravel(field)).reshape(np.shape(field))
        if not np.isfinite(array).all():
            raise ValueError(f"state: {name} must be finite; the state was altered.")
        whole = bool((array == np.floor(array)).all()) if name in INTEGER_FIELDS else False
    if name in INTEGER_FIELDS and not (
        whole and array.min(initial=least) >= least and array.max(initial=least) <= MAX_STEP
    ):
        raise ValueError(f"state: {name} must hold whole numbers, {least} or more; the state was altered.")
    return array.astype(holding(dtype_of(name), array), copy=False)


def stored_shown(state: dict[str, Any], width: int) -> int:
    """Number of columns visible to a step in order; all if visits do not come late. A ValueError if invalid."""
    shown = state.get("shown", width)
    if type(shown) is not int or not 1 <= shown <= width or (shown < width and state.get("late") is None):
        raise ValueError(f"state: shown must be a whole number of columns from 1 to {width}, got {shown!r}.")
    return shown


def stored_state(state: Any, size: int) -> np.ndarray:
    """The numbers kept for each prompt, with the empty row 0 in front."""
    if state is None:
        return np.zeros((size + 1, 0), dtype=np.float32)
    if not isinstance(state, np.ndarray) or state.ndim != 2 or len(state) != size or state.dtype != np.float32:
        raise ValueError("state: the numbers kept for each prompt do not fit its keys; the state was altered.")
    if not np.isfinite(state).all():
        raise ValueError("state: the numbers kept for each prompt must be finite; the state was altered.")
    return after_empty(state)


def padded(field: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The field in the upper right corner of a larger array of zeros (visits are right-aligned)."""
    larger = _zeros(shape, field.dtype)
    larger[: field.shape[0], shape[1] - field.shape[1] :] = field
    return larger


def after_empty(field: np.ndarray) -> np.ndarray:
    """The field with the empty row 0 in front."""
    larger = _zeros((len(field) + 1, field.shape[1]), field.dtype)
    larger[1:] = field
    return larger


def _zeros(shape: tuple[int, int], dtype: np.dtype[Any]) -> np.ndarray:
    """Zeros; many of them stand in pages of their own, which go back to the system with the array.

    A history grows by replacing its columns. On the heap, the old columns would leave holes between its prompt ids.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < _MANY or not hasattr(mmap, "MAP_ANONYMOUS"):  # the latter on Windows
        return np.zeros(shape, dtype=dtype)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # a child process gets a copy
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)  # as NumPy does
    return np.frombuffer(pages, dtype=dtype).reshape(shape)


def dtype_of(name: str) -> np.dtype[Any]:
    """Type of a column that has no numbers yet; see `holding`."""
    if name in NARROW_FIELDS:
        return np.dtype(np.int16)
    return np.dtype(np.int32 if name in INTEGER_FIELDS else np.float64)


def holding(dtype: np.dtype[Any], numbers: np.ndarray) -> np.dtype[Any]:
    """The type, or the next wider one that holds some numbers exactly: 16 bits, 32 bits, double precision.

    Whole-number rewards have whole sums, which need a quarter of the memory.
    """
    if dtype.kind != "i" or not numbers.size:
        return dtype
    if numbers.dtype.kind != "i" and not (numbers == np.floor(numbers)).all():
        return np.dtype(np.float64)
    largest = max(int(numbers.max()), -int(numbers.min()))
    for wider in (dtype, np.dtype(np.int32)):
        if largest <= np.iinfo(wider).max:
            return wider
    return np.dtype(np.float64)
