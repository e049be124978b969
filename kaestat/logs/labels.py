"""Prompts and groups of completions as integer codes: a column of labels, with each distinct label stored once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np


@dataclass(frozen=True, eq=False)
class Labels:
    """A column of labels in coded form."""

    codes: np.ndarray  # of int32, shape (N,); position of each entry in ``distinct``
    distinct: list[Hashable]  # Every label that occurs, once, in order of first appearance

    @classmethod
    def of(cls, values: Iterable[Hashable]) -> Labels:
        """A coded column; labels that are equal, such as 1 and 1.0, become one."""
        number: dict[Hashable, int] = {}
        codes = np.fromiter((number.setdefault(value, len(number)) for value in values), dtype=np.int32)
        return cls(codes, list(number))

    @classmethod
    def of_coded(cls, codes: np.ndarray, values: Iterable[Hashable]) -> Labels:
        """The column with codes from elsewhere, whose values may be equal, out of order, or unused."""
        merged = cls.of(values)
        used, first, codes = np.unique(merged.codes[codes], return_index=True, return_inverse=True)
        order = np.argsort(first)
        return cls(np.argsort(order).astype(np.int32)[codes], [merged.distinct[code] for code in used[order].tolist()])

    @classmethod
    def joined(cls, parts: Sequence[Labels]) -> Labels:
        """Several columns, concatenated."""
        if len(parts) == 1:
            return parts[0]
        merged = cls.of(chain.from_iterable(part.distinct for part in parts))
        starts = np.cumsum([0, *(len(part.distinct) for part in parts)])
        codes = [merged.codes[start:][part.codes] for start, part in zip(starts, parts, strict=False)]
        return cls(np.concatenate(codes), merged.distinct)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, position: int) -> Hashable:
        return self.distinct[self.codes[position]]

    def take(self, chosen: np.ndarray) -> Labels:
        """The entries at some positions, or where a mask is True."""
        return Labels.of_coded(self.codes[chosen], self.distinct)
