"""Conversion between training samples, in any order and array type, and the (P, G) arrays of the formulas."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from typing import Any

import array_api_compat
import numpy as np

from kaestat.core.arrays import Array
from kaestat.core.checks import MAX_STEP, check_column, check_ids, check_mask

FEW_IDS = 64  # so many are numbered one by one
TABLE_PER_ID, SMALL_TABLE = 16, 4096  # largest table of integer ids, in entries per id and in all
WEIGHTINGS = ("weights", "importance")
_FLOATS = {np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)}


@dataclass(frozen=True, eq=False)
class CodedIds:
    """Ids of samples as integers, numbered in the order in which they first appear.

    Attributes
    ----------
    keys : list of hashables, length P
        The distinct ids.
    of_runs : ndarray of int, shape (R,)
        Position in ``keys`` of the id of each run of equal ids.
    lengths : ndarray of int, shape (R,), or None
        Samples of each run; None for 1 each.
    """

    keys: list[Hashable]
    of_runs: np.ndarray
    lengths: np.ndarray | None = None

    @classmethod
    def of(cls, ids: list[Any] | np.ndarray) -> CodedIds:
        """The ids of a list, or of an array of integers, numbered.

        Raises
        ------
        TypeError
            If an id is not hashable.
        """
        lengths, heads = _runs(ids)
        if isinstance(heads, np.ndarray) and heads.dtype.kind in "iu" and len(heads) > FEW_IDS:
            keys, codes = _code_integers(heads)
        else:
            listed = heads.tolist() if isinstance(heads, np.ndarray) else heads
            keys, codes = _code_objects(listed, in_runs=lengths is not None)
        return cls(keys, codes, lengths)

    @cached_property
    def codes(self) -> np.ndarray:
        """Position in ``keys`` of each sample's id, shape (N,)."""
        return self.of_runs if self.lengths is None else np.repeat(self.of_runs, self.lengths)

    @property
    def counts(self) -> np.ndarray | None:
        """Samples of each id, shape (P,); None if those of one may be apart."""
        return self.lengths if self.lengths is not None and len(self.lengths) == len(self.keys) else None

    def paired(self, other: CodedIds) -> CodedIds:
        """The pairs (id, other id) of the same samples, as new ids."""
        width = max(len(other.keys), 1)
        numbers, codes = _code_integers(self.codes * width + other.codes)
        return CodedIds([(self.keys[pair // width], other.keys[pair % width]) for pair in numbers], codes)


def code_ids(name: str, ids: Any, size: int, keep: np.ndarray | None = None) -> CodedIds:
    """The ids of the samples that are not masked, checked and numbered.

    Raises
    ------
    TypeError, ValueError
        As `kaestat.core.checks.check_ids`.
    """
    return CodedIds.of(check_ids(name, ids, size, keep))


_ARRAYS = ("reward", "weight", "divergence", "version", "keep")  # of samples


@dataclass(frozen=True, eq=False)
class StepSamples:
    """The checked samples of one step, without the masked ones, in arrays that share no memory with the caller's.

    Attributes
    ----------
    rows : CodedIds
        The key of each sample's history: its prompt, or prompt and stream.
    reward : ndarray, shape (N,)
    weight : ndarray, shape (N,), or None
        Weight of each completion: its importance ratio, its weight, or its weight times the squared ratio.
    divergence : ndarray, shape (N,), or None
    version : ndarray of int, shape (N,), or None
        Step of the policy that sampled each; None if it is the step of the call.
    with_streams : bool
        Whether stream ids were given.
    weighting : str
        Which of "weights" and "importance" were given, joined by "+"; "none" if neither was.
    keep : ndarray of bool, or None
        Which of the given samples are kept; None for all.
    """

    rows: CodedIds
    reward: np.ndarray
    weight: np.ndarray | None
    divergence: np.ndarray | None
    version: np.ndarray | None
    with_streams: bool
    weighting: str
    keep: np.ndarray | None

    @classmethod
    def of(
        cls,
        prompt_ids: Any,
        rewards: Any,
        mask: Any,
        stream_ids: Any,
        weights: Any,
        importance: Any = None,
        divergence: Any = None,
        version: Any = None,
        *,
        by_stream: bool,
    ) -> StepSamples:
        """The arguments of `AdvantageEstimator.step`, checked, with ids numbered.

        Parameters
        ----------
        prompt_ids, rewards, mask, stream_ids, weights, importance, divergence, version
            As there.
        by_stream : bool
            Whether streams of a prompt are kept apart.

        Raises
        ------
        TypeError, ValueError
            As there.
        """
        reward = check_column("rewards", rewards)
        size = len(reward)
        keep = None if mask is None else check_mask(mask, size)
        reward = check_column("rewards", reward, size, keep, least=-np.inf)
        rows = code_ids("prompt_ids", prompt_ids, size, keep)
        if stream_ids is not None and by_stream:
            rows = rows.paired(code_ids("stream_ids", stream_ids, size, keep))
        elif stream_ids is not None:
            check_ids("stream_ids", stream_ids, size, keep)
        columns = {"weights": weights, "importance": importance, "divergence": divergence, "version": version}
        columns = {name: column for name, column in columns.items() if column is not None}
        given = {name: check_column(name, column, size, keep, least=0) for name, column in columns.items()}
        weight, ratios, drift, steps = map(given.get, ("weights", "importance", "divergence", "version"))
        if ratios is not None:
            with np.errstate(over="ignore"):  # non-finite numbers are refused with the sums
                weight = ratios if weight is None else weight * ratios**2
        if steps is not None and not ((steps <= MAX_STEP) & (steps == np.floor(steps))).all():
            raise ValueError(f"version must hold steps: whole numbers from 0 to {MAX_STEP}.")
        versions = None if steps is None else steps.astype(np.int64)
        weighting = "+".join(name for name in WEIGHTINGS if name in given) or "none"
        return cls(rows, reward, weight, drift, versions, stream_ids is not None, weighting, keep)

    def same_as(self, other: StepSamples) -> bool:
        """Whether all arguments were equal."""
        if (self.with_streams, self.weighting) != (other.with_streams, other.weighting):
            return False
        for name in _ARRAYS:
            one, two = getattr(self, name), getattr(other, name)
            if (one is None) != (two is None) or (one is not None and not np.array_equal(one, two)):
                return False
        return self.rows.keys == other.rows.keys and np.array_equal(self.rows.codes, other.rows.codes)


@dataclass(frozen=True, eq=False)
class Packing:
    """The place of each sample of a step: row = its prompt (in order of first appearance), column = its index there.

    Attributes
    ----------
    ids : CodedIds
        Their distinct ``keys`` are the rows, and their ``codes`` the row of each sample.
    order : ndarray of int, shape (N,), or None
        Samples sorted by row, original order kept within it; None if they are sorted already.
    counts : ndarray of int, shape (P,)
        Samples of each row.
    mask : ndarray of bool, shape (P, G), or None
        True where there is a sample; None if all rows are full.
    """

    ids: CodedIds
    order: np.ndarray | None
    counts: np.ndarray
    mask: np.ndarray | None

    @classmethod
    def of(cls, ids: CodedIds) -> Packing:
        """The packing with one row for each distinct id."""
        if ids.counts is not None:
            return cls(ids, None, ids.counts, _mask_of(ids.counts))
        keys, codes = ids.keys, ids.codes
        sorted_already = len(codes) < 2 or bool((codes[1:] >= codes[:-1]).all())
        narrow = codes if sorted_already else codes.astype(np.min_scalar_type(len(keys)))
        order = None if sorted_already else np.argsort(narrow, kind="stable")  # NumPy sorts 16 bits in linear time
        counts = np.bincount(codes, minlength=len(keys))
        return cls(ids, order, counts, _mask_of(counts))

    @property
    def keys(self) -> list[Hashable]:
        """The distinct keys, length P."""
        return self.ids.keys

    @property
    def codes(self) -> np.ndarray:
        """Row of each sample, shape (N,)."""
        return self.ids.codes

    def pack(self, samples: np.ndarray) -> np.ndarray:
        """Samples (N,) as an array (P, G), 0 in the padding; it may share memory with ``samples``."""
        ordered = samples if self.order is None else samples[self.order]
        if self.mask is None:
            return ordered.reshape(len(self.keys), self.counts.max(initial=0))
        packed = np.zeros(self.mask.shape, dtype=samples.dtype)
        packed[self.mask] = ordered
        return packed

    def one_per_row(self, name: str, samples: np.ndarray) -> np.ndarray:
        """The value that all samples of a row share, shape (P,).

        Raises
        ------
        ValueError
            If the samples of a row differ.
        """
        packed = self.pack(samples)
        same = packed == packed[:, :1]
        if not (same if self.mask is None else same | ~self.mask).all():
            raise ValueError(f"{name} must be the same for all samples of a prompt.")
        return packed[:, 0].copy()

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """The inverse of `pack`; may share memory with ``packed``."""
        ordered = packed.reshape(-1) if self.mask is None else packed[self.mask]
        if self.order is None:
            return ordered
        samples = np.empty_like(ordered)
        samples[self.order] = ordered
        return samples


def _mask_of(counts: np.ndarray) -> np.ndarray | None:
    full = len(counts) == 0 or bool((counts == counts[0]).all())
    return None if full else np.arange(counts.max()) < counts[:, None]


def scatter(samples: np.ndarray, keep: np.ndarray | None) -> np.ndarray:
    """The samples put back among the masked ones, which get 0."""
    if keep is None:
        return samples
    scattered = np.zeros(len(keep))
    scattered[keep] = samples
    return scattered


def largest_like(template: Any) -> float:
    """The largest number of the floating type that `as_type_of` returns."""
    if array_api_compat.is_torch_array(template):
        import torch

        return torch.finfo(template.dtype if template.is_floating_point() else torch.get_default_dtype()).max
    dtype = getattr(template, "dtype", None)
    return float(np.finfo(dtype if dtype in _FLOATS else np.float64).max)


def as_type_of(samples: np.ndarray, template: Any) -> Array:
    """A new array of ``samples`` in the array type, device and floating type of ``template``."""
    if array_api_compat.is_torch_array(template):
        import torch

        dtype = template.dtype if template.is_floating_point() else torch.get_default_dtype()
        # NumPy rounds: torch would start threads, and wait for cores that a training loop keeps busy.
        rounded = samples.astype(np.float64 if dtype == torch.float64 else np.float32)
        return torch.from_numpy(rounded).to(device=template.device, dtype=dtype)
    dtype = getattr(template, "dtype", None)
    return samples.astype(dtype if dtype in _FLOATS else np.float64)


def _runs(ids: list[Any] | np.ndarray) -> tuple[np.ndarray | None, list[Any] | np.ndarray]:
    """Lengths of runs of equal ids, and the first id of each.

    None and all ids where few equal ones are side by side, or they cannot be compared.

    Where most of the ids side by side are one object, a run ends with the object: the next may be of an equal one.
    """
    if len(ids) <= FEW_IDS or isinstance(ids, list):
        return None, ids  # a look into a dictionary for each id costs no more
    begins = np.ones(len(ids) + 1, dtype=bool)
    try:
        if ids.dtype.kind == "O" and sum(map(eq, ids[:FEW_IDS], ids[1 : FEW_IDS + 1])) < FEW_IDS / 2:
            return None, ids
        if ids.dtype.kind == "O":  # the completions of a prompt mostly share one object
            ids = np.ascontiguousarray(ids)
            address = np.ctypeslib.as_array(ctypes.cast(ids.ctypes.data, ctypes.POINTER(ctypes.c_ssize_t)), ids.shape)
            np.not_equal(address[1:], address[:-1], out=begins[1:-1])
        if ids.dtype.kind != "O" or 2 * np.count_nonzero(begins) > len(ids):
            np.not_equal(ids[1:], ids[:-1], out=begins[1:-1])
    except Exception:  # arrays and pandas.NA compare in their own ways; they are refused once they are known
        return None, ids
    n_runs = np.count_nonzero(begins) - 1
    if 2 * (n_runs + 1) > len(ids):
        return None, ids
    length, rest = divmod(len(ids), n_runs)
    if rest == 0 and begins[::length].all():  # mostly so, and a slice takes a third of the time of so many positions
        return np.full(n_runs, length), ids[::length]
    bounds = np.flatnonzero(begins)
    return bounds[1:] - bounds[:-1], ids[bounds[:-1]]


def _code_objects(ids: list[Any], *, in_runs: bool) -> tuple[list[Hashable], np.ndarray]:
    # Trainers give one run of each, and a set shows that in half the time of a dictionary.
    keys = ids if in_runs and len(set(ids)) == len(ids) else list(dict.fromkeys(ids))
    if len(keys) == len(ids):
        return keys, np.arange(len(ids))
    number = dict(zip(keys, range(len(keys)), strict=True))
    return keys, np.fromiter(map(number.__getitem__, ids), dtype=np.intp, count=len(ids))


def _code_integers(ids: np.ndarray) -> tuple[list[Any], np.ndarray]:
    low, high = (int(ids.min()), int(ids.max())) if len(ids) else (0, 0)
    if high - low < TABLE_PER_ID * len(ids) + SMALL_TABLE:  # one pass over a table in place of a sort
        slot = (ids - ids.dtype.type(low)).astype(np.intp) if ids.dtype.kind == "u" else ids.astype(np.intp) - low
        n_slots = high - low + 1
    else:
        distinct, slot = np.unique(ids, return_inverse=True)
        n_slots = len(distinct)
    place, of_slot = np.arange(len(ids)), np.empty(n_slots, dtype=np.intp)
    of_slot[slot[::-1]] = place[::-1]  # of equal ids the last assignment stays, which is that of the first
    new = np.flatnonzero(of_slot[slot] == place)
    if len(new) == len(ids):
        return ids.tolist(), place
    of_slot[slot[new]] = place[: len(new)]  # the number of an id, in place of where it comes first
    return ids[new].tolist(), of_slot[slot]
