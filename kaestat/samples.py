"""Training samples, in any order and array type <-> the (P, G) arrays of the formulas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import array_api_compat
import numpy as np

from kaestat.arrays import Array

_FLOATS = {np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)}


@dataclass(frozen=True, eq=False)
class Packing:
    """Where each sample of a step goes: row = its prompt (in order of first appearance), column = its place there.

    Attributes
    ----------
    keys : list of hashables, length P
        The distinct keys.
    codes : ndarray of int, shape (N,)
        Row of each sample.
    order : ndarray of int, shape (N,), or None
        Samples sorted by row, original order kept within it; None if they are sorted already.
    counts : ndarray of int, shape (P,)
        Samples of each row.
    """

    keys: list[Hashable]
    codes: np.ndarray
    order: np.ndarray | None
    counts: np.ndarray

    @classmethod
    def of(cls, sample_keys: Sequence[Hashable]) -> Packing:
        """Group samples by key.

        Raises
        ------
        TypeError
            If a key is not hashable.
        """
        number: defaultdict[Hashable, int] = defaultdict(count().__next__)  # the next number for every new key
        codes = np.fromiter(map(number.__getitem__, sample_keys), dtype=np.intp, count=len(sample_keys))
        sorted_already = len(codes) < 2 or bool((codes[1:] >= codes[:-1]).all())
        narrow = codes.astype(np.min_scalar_type(len(number)))  # NumPy sorts 16 bits in linear time
        order = None if sorted_already else np.argsort(narrow, kind="stable")
        return cls(list(number), codes, order, np.bincount(codes, minlength=len(number)))

    @property
    def full(self) -> bool:
        """Whether all rows have the same number of samples."""
        return len(self.counts) == 0 or bool((self.counts == self.counts[0]).all())

    @property
    def mask(self) -> np.ndarray | None:
        """Boolean (P, G), True where there is a sample; None if all rows are full."""
        if self.full:
            return None
        return np.arange(self.counts.max()) < self.counts[:, None]

    def pack(self, samples: np.ndarray) -> np.ndarray:
        """Samples (N,) as an array (P, G), 0 in the padding."""
        ordered = samples if self.order is None else samples[self.order]
        if self.full:
            return ordered.reshape(len(self.keys), self.counts.max(initial=0))
        packed = np.zeros((len(self.keys), self.counts.max()), dtype=samples.dtype)
        packed[self.mask] = ordered
        return packed

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """The inverse of `pack`."""
        ordered = packed.reshape(-1) if self.full else packed[self.mask]
        if self.order is None:
            return ordered
        samples = np.empty_like(ordered)
        samples[self.order] = ordered
        return samples


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
