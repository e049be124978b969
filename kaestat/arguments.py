"""What the formulas of theory and inference take: numbers of such sizes that no product of four of them overflows."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from kaestat.arrays import Array
from kaestat.baselines.base import check_number

SMALLEST, LARGEST = 1e-70, 1e70


def positive(name: str, value: Any, *, allow_zero: bool = False) -> float:
    """A number as a float.

    Raises
    ------
    ValueError, TypeError
        If it is none, negative, 0 without ``allow_zero``, or too large or small.
    """
    number = check_number(name, value)
    least, kind = (0.0, "non-negative") if allow_zero else (SMALLEST, "positive")
    if not least <= number <= LARGEST:
        raise ValueError(f"{name} must be {kind}, from {least:g} to {LARGEST:g}, got {value!r}.")
    return number


def whole(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number.

    Raises
    ------
    ValueError
        If it is none, or below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= 2**53:
        raise ValueError(f"{name} must be a whole number from {least} on, at most 2^53, got {value!r}.")
    return int(value)


def numbers(
    name: str, values: Any, *, least: float = -LARGEST, most: float = LARGEST, ndim: int = 0, finite: bool = True
) -> np.ndarray:
    """An array of float64.

    Raises
    ------
    TypeError
        If there is something that is no real number.
    ValueError
        If one is below ``least``, above ``most`` or, with ``finite``, infinite or NaN; or if there are fewer than
        ``ndim`` axes.
    """
    if is_torch_array(values):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values  # NumPy has no bfloat16
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "iuf":
            raise TypeError(f"dtype {given.dtype}")
        array = given.astype(np.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"{name} must be numbers ({error}).") from None
    if array.ndim < ndim or (array.ndim and not array.shape[-1]):
        raise ValueError(f"{name} must have {ndim} or more axes, the last not empty, got shape {array.shape}.")
    refused = ~((array >= least) & (array <= most)) & (np.isfinite(array) | finite)
    if refused.any():
        kind = {0: "non-negative, ", SMALLEST: "positive, "}.get(least, "")
        raise ValueError(f"{name} must be {kind}from {least:g} to {most:g}, got {array[refused].flat[0]:g}.")
    return array


def array_like(name: str, values: Any, *, least: float = -LARGEST, ndim: int = 0) -> Array:
    """As `numbers`, but a tensor stays what it is, and a number becomes a float, which goes with both."""
    checked = numbers(name, values, least=least, ndim=ndim)
    return values if is_torch_array(values) else checked if checked.ndim else float(checked)


def one_shape(**arrays: Array) -> None:
    """Raise a ValueError that names the arrays unless their shapes broadcast."""
    try:
        if 0 in np.broadcast_shapes(*(np.shape(array) for array in arrays.values())):
            raise ValueError
    except ValueError:
        shapes = ", ".join(f"{name} {tuple(np.shape(array))}" for name, array in arrays.items())
        raise ValueError(f"shapes do not fit together, or are empty: {shapes}.") from None
