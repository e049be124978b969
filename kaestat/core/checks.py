"""Argument checks. Each returns the argument in one form, or raises an error that names it and says what to do."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Iterable
from itertools import groupby
from types import NoneType
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from kaestat.core.arrays import Array
from kaestat.core.spelling import nearest

# Parameters: products and ratios of two of them, and of one with a lag, do not overflow.
SMALLEST_PARAMETER, LARGEST_PARAMETER = 1e-140, 1e140
# Factors: arguments of closed forms, and rewards. No product of four, and no fourth power, overflows.
SMALLEST_FACTOR, LARGEST_FACTOR = 1e-70, 1e70
EQUAL_TO_THEMSELVES = {str, int, bytes}  # kinds of ids of which none is NaN
LARGEST_WHOLE = 2**53  # up to here a float holds every whole number
MAX_STEP = 2**31 - 2
MAX_REWARD = 1e70  # of a log: the fourth powers in variances of variances must be finite


def check_whole(name: str, value: Any, *, least: int = 1, most: int = LARGEST_WHOLE) -> int:
    """``value`` as an int; a ValueError unless it is one between ``least`` and ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        limits = f"of at least {least}" if most == LARGEST_WHOLE else f"from {least} to {most:,}"
        at_most = ", at most 2^53" if isinstance(value, int | np.integer) and value > LARGEST_WHOLE else ""
        raise ValueError(f"{name} must be a whole number {limits}{at_most}, got {value!r}.")
    return int(value)


def whole_step(step: Any) -> int:
    """``step`` as an int."""
    number = step.item() if getattr(step, "ndim", None) == 0 else step
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"step must be a whole number, got {step!r}.")
    if not (0 <= number <= MAX_STEP and number == int(number)):
        raise ValueError(f"step must be a whole number between 0 and {MAX_STEP}, got {step!r}.")
    return int(number)


def check_number(name: str, value: Any, wanted: str = "a number") -> float:
    """A number as a float, NaN and infinities included; a TypeError for what arrays cannot be multiplied with."""
    # Fractions and decimals are refused: arrays times these are arrays of objects. Text, complex numbers and truth
    # values in arrays would become numbers; types go by their names, which array libraries share.
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    is_scalar = getattr(value, "ndim", None) == 0 and dtype.startswith(("int", "uint", "float", "bfloat"))
    if isinstance(value, bool) or not (isinstance(value, int | float) or is_scalar):
        raise TypeError(f"{name} must be {wanted}, got {value!r}.")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must be {wanted}: {error}.") from error


def check_finite_number(name: str, value: Any) -> float:
    """A finite number as a float; an error unless it is one, and no larger than parameters may be."""
    number = check_number(name, value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {value!r}.")
    _check_size(name, number, 0)
    return number


def check_positive(name: str, value: Any, *, allow_inf: bool = False, allow_zero: bool = False) -> float:
    """A positive parameter as a float.

    Raises a TypeError or ValueError if it is not a positive number, or smaller or larger than parameters may be.
    """
    kind = ("non-negative" if allow_zero else "positive") + ("" if allow_inf else " and finite")
    number = check_number(name, value, f"a {kind} number")
    in_range = number >= 0 if allow_zero else number > 0
    if not in_range or (math.isinf(number) and not allow_inf):
        raise ValueError(f"{name} must be {kind}, got {value!r}.")
    _check_size(name, number, 0 if allow_zero else SMALLEST_PARAMETER)
    return number


def check_share(name: str, value: Any, *, allow_zero: bool = False) -> float:
    """A number in (0, 1], or [0, 1], as a float; a TypeError or ValueError if it is none."""
    number = check_number(name, value)
    if not (0 < number <= 1 or (allow_zero and number == 0)):
        raise ValueError(f"{name} must lie in {'[' if allow_zero else '('}0, 1], got {value!r}.")
    return number


def check_factor(name: str, value: Any, *, allow_zero: bool = False) -> float:
    """A positive argument of a closed form as a float; an error unless it is one, within the bounds of factors."""
    number = check_number(name, value)
    least, kind = (0.0, "non-negative") if allow_zero else (SMALLEST_FACTOR, "positive")
    if not least <= number <= LARGEST_FACTOR:
        raise ValueError(f"{name} must be {kind}, from {least:g} to {LARGEST_FACTOR:g}, got {value!r}.")
    return number


def check_factors(
    name: str,
    values: Any,
    *,
    least: float = -LARGEST_FACTOR,
    most: float = LARGEST_FACTOR,
    ndim: int = 0,
    finite: bool = True,
) -> np.ndarray:
    """A float64 array of any shape, each entry a valid factor; a TypeError unless all are real numbers.

    A ValueError if one is below ``least``, above ``most`` or, with ``finite``, infinite or NaN; or if there are fewer
    than ``ndim`` axes.
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
        kind = {0: "non-negative, ", SMALLEST_FACTOR: "positive, "}.get(least, "")
        raise ValueError(f"{name} must be {kind}from {least:g} to {most:g}, got {array[refused].flat[0]:g}.")
    return array


def check_factors_like(name: str, values: Any, *, least: float = -LARGEST_FACTOR, ndim: int = 0) -> Array:
    """As `check_factors`, but a tensor stays a tensor, and a number becomes a float, which works with both."""
    checked = check_factors(name, values, least=least, ndim=ndim)
    return values if is_torch_array(values) else checked if checked.ndim else float(checked)


def check_shapes(**arrays: Array) -> None:
    """Raise a ValueError that names the arrays if their shapes do not broadcast or one is empty."""
    try:
        if 0 in np.broadcast_shapes(*(np.shape(array) for array in arrays.values())):
            raise ValueError
    except ValueError:
        shapes = ", ".join(f"{name} {tuple(np.shape(array))}" for name, array in arrays.items())
        raise ValueError(f"shapes do not fit together, or are empty: {shapes}.") from None


def check_column(name: str, values: Any, size: int | None = None, *, own: bool = False) -> np.ndarray:
    """Numbers, one per sample, as float64 of shape (N,); they share no memory with ``values`` if ``own``.

    A TypeError unless all are real numbers, and a ValueError unless there is one axis with ``size`` entries.
    """
    numbers = _one_each(name, values, "sample", own)
    if size is not None and len(numbers) != size:
        raise ValueError(f"{name} has {len(numbers)} entries for {size} rewards; give one per sample.")
    return numbers


def check_per_prompt(name: str, values: Any, size: int | None = None) -> np.ndarray:
    """Finite numbers of 0 or more, one per prompt, as float64 of shape (P,); errors as `check_column`."""
    numbers = _one_each(name, values, "prompt")
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise ValueError(f"{name} must be finite numbers of 0 or more, one per prompt, got {numbers!r}.")
    if size is not None and len(numbers) != size:
        raise ValueError(f"{name} has {len(numbers)} entries for {size} prompts; give one per prompt.")
    return numbers


def check_mask(mask: Any, size: int) -> np.ndarray | None:
    """A boolean array of shape (N,), or None if no sample is masked; an error unless it is boolean, of that shape."""
    numbers = check_column("mask", mask, size)
    if not ((numbers == 0) | (numbers == 1)).all():
        raise ValueError("mask must be boolean (True where there is a sample).")
    return None if numbers.all() else numbers > 0


def check_ids(name: str, ids: Any, size: int | None = None, keep: np.ndarray | None = None) -> list[Any]:
    """One id for each sample that is not masked.

    A TypeError if an id is not hashable, or is an array, which would never equal that of another step; a ValueError if
    their number is wrong, or an id is missing.
    """
    listed = list_ids(name, ids, size, keep)
    if isinstance(listed, np.ndarray):
        return listed.tolist()
    try:
        distinct = set(listed)
    except TypeError as error:
        raise unhashable(name, error) from None
    check_distinct_ids(name, distinct)
    return listed


def list_ids(name: str, ids: Any, size: int | None = None, keep: np.ndarray | None = None) -> list[Any] | np.ndarray:
    """The ids of the samples that are not masked: arrays of integers or objects unchanged, others as lists."""
    if isinstance(ids, str | bytes):
        raise TypeError(f"{name} must be a sequence with one id per sample, got one {type(ids).__name__}.")
    if is_torch_array(ids):
        ids = ids.detach().cpu().numpy() if not ids.is_floating_point() else ids.tolist()
    if not (isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind in "iuO"):
        ids = ids.tolist() if hasattr(ids, "tolist") else ids
        try:
            ids = list(ids)
        except TypeError:
            raise TypeError(f"{name} must be a sequence with one id per sample, got {type(ids).__name__}.") from None
    if size is not None and len(ids) != size:
        raise ValueError(f"{name} has {len(ids)} entries for {size} rewards; give one id per sample.")
    if keep is None:
        return ids
    return (
        ids[keep]
        if isinstance(ids, np.ndarray)
        else [key for key, kept in zip(ids, keep.tolist(), strict=True) if kept]
    )


def unhashable(name: str, error: TypeError) -> TypeError:
    """The error to raise for ids that are not hashable."""
    return TypeError(f"{name} must be hashable ({error}); turn lists into tuples, or hash the prompt text.")


def check_distinct_ids(name: str, distinct: Iterable[Any]) -> None:
    """Raise a TypeError if an id is an array, a ValueError if one is missing."""
    try:
        "".join(distinct)  # of text alone, in half the time
        return
    except TypeError:
        kinds = {kind for kind, _ in groupby(distinct, type)}  # mostly one: two thirds of the time of a set of all
    for kind in kinds:
        if hasattr(kind, "__array__") and not issubclass(kind, np.generic):
            raise TypeError(f"{name} holds arrays ({kind.__name__}), which differ at every step; pass ids.tolist().")
    try:
        missing = NoneType in kinds or (not kinds <= EQUAL_TO_THEMSELVES and any(map(operator.ne, distinct, distinct)))
    except (TypeError, ValueError):  # pandas.NA is neither equal to itself nor not
        missing = True
    if missing:
        raise ValueError(
            f"{name}: None or NaN is not an id. Key prompts by (source, split, index), or by a hash of the prompt text."
        )


def check_finite(reward: np.ndarray, **others: np.ndarray | None) -> None:
    """Raise a ValueError unless rewards are finite, and the other columns (if not None) finite and non-negative."""
    finite = np.isfinite(reward)
    if not finite.all():
        first = int(np.argmin(finite))
        raise ValueError(
            f"rewards must be finite: {(~finite).sum()} of {len(reward)} unmasked ones are not, the first is "
            f"{reward[first]} at position {first} among them. Mask samples without a reward."
        )
    for name, numbers in others.items():
        if numbers is not None and not (np.isfinite(numbers).all() and (numbers >= 0).all()):
            raise ValueError(f"{name} must be finite and non-negative.")


def check_seed(seed: Any) -> np.random.Generator:
    """A NumPy random generator made from a seed; a TypeError if it is not a valid one."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise TypeError(f"seed must be a whole number of at least 0, got {seed!r}.") from error


def check_parameters(what: str, cls: type, params: dict[str, Any]) -> None:
    """Raise a ValueError that lists a dataclass's parameters if ``params`` holds an unknown one."""
    known = constructor_parameters(cls)
    for name in params:
        if name not in known:
            choice = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ValueError(f"{what}: unknown parameter {name!r}{nearest(name, known)}; {choice}.")


def constructor_parameters(cls: Any) -> list[str]:
    """The names of the parameters of a dataclass's constructor."""
    if cls.__init__.__qualname__.startswith(f"{cls.__name__}.") and not cls.__dataclass_params__.init:
        code = cls.__init__.__code__
        return list(code.co_varnames[1 : code.co_argcount])
    return [field.name for field in dataclasses.fields(cls) if field.init]


def _one_each(name: str, values: Any, per: str, own: bool = False) -> np.ndarray:
    """Numbers of one axis, as float64; they share no memory with ``values`` if ``own``."""
    if is_torch_array(values):
        values = values.detach().cpu()
        if values.is_floating_point() and values.element_size() < 4:
            values = values.float()  # NumPy has no bfloat16
        values = values.numpy()
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "biufO":
            raise TypeError(f"dtype {given.dtype}")
        numbers = given.astype(np.float64, copy=own and not isinstance(values, list | tuple))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"{name} must be numbers, one per {per} ({error}).") from None
    if numbers.ndim != 1:
        raise ValueError(f"{name} must have one axis (one entry per {per}), got shape {numbers.shape}.")
    return numbers


def _check_size(name: str, number: float, smallest: float) -> None:
    if math.isfinite(number) and not smallest <= abs(number) <= LARGEST_PARAMETER:
        raise ValueError(f"{name} must be between {smallest:g} and {LARGEST_PARAMETER:g} in size, got {number!r}.")
