"""Argument checks. Each returns the argument in one form, or raises an error that names it and says what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

SMALLEST, LARGEST = 1e-70, 1e70  # of a number: no product of four, and no fourth power, vanishes or overflows
MAX_REWARD = LARGEST
LARGEST_WHOLE = 2**53  # up to here a float holds every whole number
MAX_SEED = 2**64  # seeds by content are hashes
MAX_STEP = 2**31 - 2  # a history holds steps in 32 bits


def check_whole(name: str, value: Any, *, least: int = 1, most: int = LARGEST_WHOLE) -> int:
    """A whole number in range, also in an array or tensor of no axes, as an int; a ValueError if it is none."""
    number = value.item() if getattr(value, "ndim", None) == 0 else value
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        limits = f"of at least {least}" if most >= LARGEST_WHOLE else f"from {least} to {most:,}"
        at_most = f", at most 2^{most.bit_length() - 1}" if isinstance(number, int) and number > LARGEST_WHOLE else ""
        raise ValueError(f"{name} must be a whole number {limits}{at_most}, got {value!r}.")
    return int(number)


def whole_step(step: Any) -> int:
    """A step as an int, also from a whole float; errors as `check_whole`."""
    whole = int(step) if isinstance(step, float) and step.is_integer() else step
    return check_whole("step", whole, least=0, most=MAX_STEP)


def check_seed(seed: Any) -> np.random.Generator:
    """A NumPy random generator made from a seed; errors as `check_whole`."""
    return np.random.default_rng(check_whole("seed", seed, least=0, most=MAX_SEED))


def check_number(name: str, value: Any, least: float = -LARGEST, most: float = LARGEST) -> float:
    """A number as a float; a TypeError if it is none, a ValueError if it is out of range."""
    # Fractions and decimals are refused: arrays times these are arrays of objects. Text, complex numbers and truth
    # values in arrays would become numbers; types go by their names, which array libraries share.
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    is_scalar = getattr(value, "ndim", None) == 0 and dtype.startswith(("int", "uint", "float", "bfloat"))
    if isinstance(value, bool) or not (isinstance(value, int | float) or is_scalar):
        raise TypeError(f"{name} must be a number, {_limits(least, most)}, got {value!r}.")
    value = float(value) if is_scalar else value  # the limits are beyond single precision
    if not (least <= value <= min(most, LARGEST) or value == most):
        raise ValueError(f"{name} must be {_limits(least, most)}, got {value!r}.")
    return float(value)


def check_positive(name: str, value: Any, *, allow_inf: bool = False, allow_zero: bool = False) -> float:
    """A positive number as a float; errors as `check_number`."""
    return check_number(name, value, 0.0 if allow_zero else SMALLEST, math.inf if allow_inf else LARGEST)


def check_share(name: str, value: Any, *, allow_zero: bool = False) -> float:
    """A positive number of at most 1 as a float; errors as `check_number`."""
    return check_number(name, value, 0.0 if allow_zero else SMALLEST, 1.0)


def check_numbers(
    name: str, values: Any, *, least: float = -LARGEST, most: float = LARGEST, ndim: int = 0, finite: bool = True
) -> np.ndarray:
    """Numbers, or without ``finite`` also infinities and NaN, as an array of float64; errors as `check_number`."""
    array = _float64(name, values)
    if array.ndim < ndim or (array.ndim and not array.shape[-1]):
        raise ValueError(f"{name} must have {ndim} or more axes, the last not empty, got shape {array.shape}.")
    refused = ~((array >= least) & (array <= most)) & (np.isfinite(array) | finite)
    if refused.any():
        raise ValueError(f"{name} must be {_limits(least, most)}, got {array[refused].flat[0]:g}.")
    return array


def check_column(
    name: str, values: Any, size: int | None = None, keep: np.ndarray | None = None, *, least: float | None = None
) -> np.ndarray:
    """Numbers, one for each sample or prompt, as a new array of float64, shape (N,), those to ``keep``.

    A TypeError unless all are numbers. A ValueError unless there are ``size`` of them in one axis, and, where ``least``
    is given, as `check_limits`.
    """
    numbers = _float64(name, values)
    if numbers.ndim != 1:
        raise ValueError(f"{name} must have one axis, got shape {numbers.shape}.")
    if size is not None and len(numbers) != size:
        raise ValueError(f"{name} has {len(numbers)} entries for {size} rows; give one each.")
    numbers = numbers if keep is None else numbers[keep]
    return numbers if least is None else check_limits(name, numbers, least)


def check_limits(name: str, numbers: np.ndarray, least: float = -LARGEST) -> np.ndarray:
    """The numbers; a ValueError if one is not finite, below ``least``, or beyond `LARGEST` in size."""
    fine = (numbers >= max(least, -LARGEST)) & (numbers <= LARGEST)
    if not fine.all():
        at = int(np.argmin(fine))
        raise ValueError(
            f"{name} must be finite{' and non-negative' * (least == 0)}, at most {LARGEST:g} in size: {(~fine).sum()} "
            f"of {len(fine)} unmasked ones are not, the first is {numbers[at]} at position {at} among them. Mask "
            "samples without one."
        )
    return numbers


def check_mask(mask: Any, size: int) -> np.ndarray | None:
    """A boolean array of shape (N,), or None if no sample is masked; an error unless it is boolean, of that shape."""
    numbers = check_column("mask", mask, size)
    if not ((numbers == 0) | (numbers == 1)).all():
        raise ValueError("mask must be boolean (True where there is a sample).")
    return None if numbers.all() else numbers > 0


def check_ids(name: str, ids: Any, size: int | None = None, keep: np.ndarray | None = None) -> list[Any]:
    """One id for each sample to ``keep``.

    A TypeError if an id is not hashable, or is an array, which would never equal that of another step; a ValueError if
    their number is wrong, or an id is missing.
    """
    listed = ids.tolist() if hasattr(ids, "tolist") else list(ids) if hasattr(ids, "__iter__") else ids
    if isinstance(ids, str | bytes) or not isinstance(listed, list):
        raise TypeError(f"{name} must be a sequence with one id per sample, got {type(ids).__name__}.")
    if size is not None and len(listed) != size:
        raise ValueError(f"{name} has {len(listed)} entries for {size} rows; give one each.")
    listed = listed if keep is None else [key for key, kept in zip(listed, keep.tolist(), strict=True) if kept]
    try:
        distinct = set(listed)
    except TypeError as error:
        raise TypeError(f"{name} must be hashable ({error}); turn lists into tuples, or hash the prompt.") from None
    for key in distinct if not set(map(type, distinct)) <= {str, int, bytes} else ():
        itself = key == key  # NaN is not, and pandas.NA is neither equal to itself nor not
        if hasattr(key, "__array__") and not isinstance(key, np.generic):
            raise TypeError(
                f"{name} holds arrays ({type(key).__name__}), which differ at every step; pass ids.tolist()."
            )
        if key is None or not (isinstance(itself, bool | np.bool_) and itself):
            raise ValueError(
                f"{name}: None or NaN is not an id. Key prompts by index, or by a hash of the prompt text."
            )
    return listed


def _float64(name: str, values: Any) -> np.ndarray:
    if is_torch_array(values):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values  # NumPy has no bfloat16
    try:
        given = np.asarray(values)
        numbers = given.astype(np.float64) if given.dtype.kind in "biufO" else None
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"{name} must be numbers ({error}).") from None
    if numbers is None:
        raise TypeError(f"{name} must be numbers (dtype {given.dtype}).")
    return numbers


def _limits(least: float, most: float) -> str:
    kind = {0: "non-negative, ", SMALLEST: "positive, ", -LARGEST: "finite, "}.get(least, "")
    return f"{kind}from {least:g} to {most:g}"
