"""What a training loop hands in, checked and turned into NumPy arrays; and results turned back into its kind."""

from __future__ import annotations

import operator
from typing import Any

import array_api_compat
import numpy as np

from kaestat.arrays import Array

_FLOATS = {np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)}


def read_numbers(name: str, values: Any, size: int | None = None) -> np.ndarray:
    """A float64 array of shape (N,); it may share memory with ``values``.

    Raises
    ------
    TypeError
        If there is something that is no real number.
    ValueError
        If there is not one axis with ``size`` entries.
    """
    if array_api_compat.is_torch_array(values):
        values = values.detach().cpu()
        if values.is_floating_point() and values.element_size() < 4:
            values = values.float()  # NumPy has no bfloat16
        values = values.numpy()
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "biufO":
            raise TypeError(f"dtype {given.dtype}")
        numbers = given.astype(np.float64, copy=False)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"{name} must be numbers, one per sample ({error}).") from None
    if numbers.ndim != 1:
        raise ValueError(f"{name} must have one axis (one entry per sample), got shape {numbers.shape}.")
    if size is not None and len(numbers) != size:
        raise ValueError(f"{name} has {len(numbers)} entries for {size} rewards; give one per sample.")
    return numbers


def read_mask(mask: Any, size: int) -> np.ndarray | None:
    """A boolean array of shape (N,), or None if nothing is masked.

    Raises
    ------
    TypeError, ValueError
        If it is not boolean, or does not fit.
    """
    numbers = read_numbers("mask", mask, size)
    if not ((numbers == 0) | (numbers == 1)).all():
        raise ValueError("mask must be boolean (True where there is a sample).")
    return None if numbers.all() else numbers > 0


def read_ids(name: str, ids: Any, size: int | None = None, keep: np.ndarray | None = None) -> list[Any]:
    """One id per sample that is not masked.

    Raises
    ------
    TypeError
        If an id is not hashable, or is an array, which no two steps would share.
    ValueError
        If their number is wrong, or an id is missing.
    """
    if isinstance(ids, str | bytes):
        raise TypeError(f"{name} must be a sequence with one id per sample, got one {type(ids).__name__}.")
    ids = ids.tolist() if hasattr(ids, "tolist") else ids
    try:
        ids = list(ids)
    except TypeError:
        raise TypeError(f"{name} must be a sequence with one id per sample, got {type(ids).__name__}.") from None
    if size is not None and len(ids) != size:
        raise ValueError(f"{name} has {len(ids)} entries for {size} rewards; give one id per sample.")
    if keep is not None:
        ids = [key for key, kept in zip(ids, keep.tolist(), strict=True) if kept]
    try:
        distinct = set(ids)
    except TypeError as error:
        raise TypeError(
            f"{name} must be hashable ({error}); turn lists into tuples, or hash the prompt text."
        ) from None
    for kind in set(map(type, distinct)):
        if hasattr(kind, "__array__") and not issubclass(kind, np.generic):
            raise TypeError(f"{name} holds arrays ({kind.__name__}), which differ at every step; pass ids.tolist().")
    try:
        missing = None in distinct or any(map(operator.ne, distinct, distinct))
    except (TypeError, ValueError):  # pandas.NA is neither equal to itself nor not
        missing = True
    if missing:
        raise ValueError(
            f"{name}: None or NaN is no id. Key prompts by (source, split, index), or by a hash of the prompt text."
        )
    return ids


def generator(seed: Any) -> np.random.Generator:
    """NumPy's generator, or an error that names the seed."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise TypeError(f"seed must be a whole number from 0 on, got {seed!r}.") from error


def check_finite(reward: np.ndarray, weight: np.ndarray | None, divergence: np.ndarray | None) -> None:
    """Raise a ValueError unless rewards are finite, and weights and divergences finite and non-negative."""
    finite = np.isfinite(reward)
    if not finite.all():
        first = int(np.argmin(finite))
        raise ValueError(
            f"rewards must be finite: {(~finite).sum()} of {len(reward)} unmasked ones are not, the first is "
            f"{reward[first]} at position {first} among them. Mask samples without a reward."
        )
    for name, numbers in (("weights", weight), ("divergence", divergence)):
        if numbers is not None and not (np.isfinite(numbers).all() and (numbers >= 0).all()):
            raise ValueError(f"{name} must be finite and non-negative.")


def scatter(samples: np.ndarray, keep: np.ndarray | None) -> np.ndarray:
    """Samples back among the masked ones, which get 0."""
    if keep is None:
        return samples
    scattered = np.zeros(len(keep))
    scattered[keep] = samples
    return scattered


def largest_like(template: Any) -> float:
    """The largest number of the floating type that `like` gives."""
    if array_api_compat.is_torch_array(template):
        import torch

        return torch.finfo(template.dtype if template.is_floating_point() else torch.get_default_dtype()).max
    dtype = getattr(template, "dtype", None)
    return float(np.finfo(dtype if dtype in _FLOATS else np.float64).max)


def like(samples: np.ndarray, template: Any) -> Array:
    """``samples`` in the array type, device and floating type of ``template``."""
    if array_api_compat.is_torch_array(template):
        import torch

        dtype = template.dtype if template.is_floating_point() else torch.get_default_dtype()
        # NumPy rounds: torch would start threads, and wait for cores that a training loop keeps busy.
        rounded = samples.astype(np.float64 if dtype == torch.float64 else np.float32)
        return torch.from_numpy(rounded).to(device=template.device, dtype=dtype)
    dtype = getattr(template, "dtype", None)
    return samples.astype(dtype) if dtype in _FLOATS else samples
