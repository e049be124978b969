"""Conversion between training samples, in any order and array type, and the (P, G) arrays of the formulas."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from kaestat.core.arrays import Array
from kaestat.core.checks import MAX_STEP, check_column, check_ids, check_mask

WEIGHTINGS = ("weights", "importance")
_FLOATS = {np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)}


@dataclass(frozen=True, eq=False)
class CodedIds:
    """Ids of samples as integers, numbered in the order in which they first appear."""

    keys: list[Hashable]  # length P; the distinct ids
    codes: np.ndarray  # of int, shape (N,); position in ``keys`` of each sample's id

    @classmethod
    def of(cls, ids: Sequence[Hashable]) -> CodedIds:
        """The ids, numbered; a TypeError if one is not hashable."""
        keys = list(dict.fromkeys(ids))
        number = dict(zip(keys, range(len(keys)), strict=True))
        return cls(keys, np.fromiter(map(number.__getitem__, ids), dtype=np.intp, count=len(ids)))

    def paired(self, other: CodedIds) -> CodedIds:
        """The pairs (id, other id) of the same samples, as new ids."""
        pairs = zip(self.codes.tolist(), other.codes.tolist(), strict=True)
        return CodedIds.of([(self.keys[one], other.keys[two]) for one, two in pairs])


def code_ids(name: str, ids: Any, size: int, keep: np.ndarray | None = None) -> CodedIds:
    """The ids of the samples that are not masked, checked and numbered.

    Raises
    ------
    TypeError, ValueError
        As `kaestat.core.checks.check_ids`.
    """
    return CodedIds.of(check_ids(name, ids, size, keep))


class Samples(NamedTuple):
    """The columns of a call of `AdvantageEstimator.step`, as the caller gave them; None where a column is absent."""

    prompt_ids: Any
    rewards: Any
    mask: Any = None
    stream_ids: Any = None
    weights: Any = None
    importance: Any = None
    divergence: Any = None
    version: Any = None  # only of `kaestat.AsynchronousEstimator`


@dataclass(frozen=True, eq=False)
class StepSamples:
    """The checked samples of one step, without the masked ones, in arrays that share no memory with the caller's."""

    rows: CodedIds  # The key of each sample's history: its prompt, or prompt and stream
    reward: np.ndarray  # shape (N,)
    # shape (N,); weight of each completion: its importance ratio, its weight, or its weight times the squared ratio
    weight: np.ndarray | None
    divergence: np.ndarray | None  # shape (N,)
    version: np.ndarray | None  # of int, shape (N,); step of the policy that sampled each; None for the call's step
    with_streams: bool  # Whether stream ids were given
    weighting: str  # Which of "weights" and "importance" were given, joined by "+"; "none" if neither was
    keep: np.ndarray | None  # of bool; which of the given samples are kept; None for all

    @classmethod
    def of(cls, given: Samples, *, by_stream: bool) -> StepSamples:
        """The columns, checked, with ids numbered; ``by_stream`` keeps the streams of a prompt apart.

        Raises
        ------
        TypeError, ValueError
            As `kaestat.AdvantageEstimator.step`.
        """
        size = len(check_column("rewards", given.rewards))
        keep = None if given.mask is None else check_mask(given.mask, size)
        reward = check_column("rewards", given.rewards, size, keep, least=-np.inf)
        rows = code_ids("prompt_ids", given.prompt_ids, size, keep)
        if given.stream_ids is not None:
            streams = code_ids("stream_ids", given.stream_ids, size, keep)
            rows = rows.paired(streams) if by_stream else rows
        columns = {}
        for name in ("weights", "importance", "divergence", "version"):
            if (column := getattr(given, name)) is not None:
                columns[name] = check_column(name, column, size, keep, least=0)
        weight, ratios, steps = columns.get("weights"), columns.get("importance"), columns.get("version")
        if ratios is not None:
            with np.errstate(over="ignore"):  # non-finite numbers are refused with the sums
                weight = ratios if weight is None else weight * ratios**2
        if steps is not None and not ((steps <= MAX_STEP) & (steps == np.floor(steps))).all():
            raise ValueError(f"version must hold steps: whole numbers from 0 to {MAX_STEP}.")
        version = None if steps is None else steps.astype(np.int64)
        weighting = "+".join(name for name in WEIGHTINGS if name in columns) or "none"
        return cls(
            rows, reward, weight, columns.get("divergence"), version, given.stream_ids is not None, weighting, keep
        )

    def same_as(self, other: StepSamples) -> bool:
        """Whether all arguments were equal."""
        arrays = [(getattr(self, name), getattr(other, name)) for name in _ARRAYS]
        return (
            self.rows.keys == other.rows.keys
            and (self.with_streams, self.weighting) == (other.with_streams, other.weighting)
            and all((one is None) == (two is None) for one, two in arrays)
            and all(one is None or np.array_equal(one, two) for one, two in arrays)
            and np.array_equal(self.rows.codes, other.rows.codes)
        )


_ARRAYS = ("reward", "weight", "divergence", "version", "keep")  # of samples


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
        codes = ids.codes
        order = None if (codes[1:] >= codes[:-1]).all() else np.argsort(codes, kind="stable")
        counts = np.bincount(codes, minlength=len(ids.keys))
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
