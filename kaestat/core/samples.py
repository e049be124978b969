"""Conversion between training samples, in any order and array type, and the (P, G) arrays of the formulas."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from kaestat.core.arrays import Array
from kaestat.core.checks import MAX_STEP, check_column, check_ids, check_limits, check_mask

_FLOATS = {np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)}


@dataclass(frozen=True, eq=False)
class Packing:
    """The place of each sample of a step: row = its prompt (in order of first appearance), column = its index there.

    Attributes
    ----------
    keys : list of hashables, length P
        The distinct ids.
    codes : ndarray of int, shape (N,)
        Row of each sample.
    order : ndarray of int, shape (N,)
        Samples sorted by row, original order kept within it.
    counts : ndarray of int, shape (P,)
        Samples of each row.
    mask : ndarray of bool, shape (P, G), or None
        True where there is a sample; None if all rows are full.
    """

    keys: list[Hashable]
    codes: np.ndarray
    order: np.ndarray
    counts: np.ndarray
    mask: np.ndarray | None

    @classmethod
    def of(cls, ids: Sequence[Hashable]) -> Packing:
        """The packing with one row for each distinct id; a TypeError if one is not hashable."""
        number = {key: row for row, key in enumerate(dict.fromkeys(ids))}
        codes = np.fromiter(map(number.__getitem__, ids), dtype=np.intp, count=len(ids))
        counts = np.bincount(codes, minlength=len(number))
        full = (counts == counts[:1]).all()
        mask = None if full else np.arange(counts.max()) < counts[:, None]
        return cls(list(number), codes, np.argsort(codes, kind="stable"), counts, mask)

    def pack(self, samples: np.ndarray) -> np.ndarray:
        """Samples (N,) as a new array (P, G), 0 in the padding."""
        ordered = samples[self.order]
        if self.mask is None:
            return ordered.reshape(len(self.keys), self.counts.max(initial=0))
        packed = np.zeros(self.mask.shape, dtype=samples.dtype)
        packed[self.mask] = ordered
        return packed

    def one_per_row(self, name: str, samples: np.ndarray) -> np.ndarray:
        """The value that all samples of a row share, shape (P,); a ValueError if they differ."""
        shared = self.pack(samples)[:, 0].copy()
        if (shared[self.codes] != samples).any():
            raise ValueError(f"{name} must be the same for all samples of a prompt.")
        return shared

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """The inverse of `pack`."""
        samples = np.empty(len(self.codes), dtype=packed.dtype)
        samples[self.order] = packed.reshape(-1) if self.mask is None else packed[self.mask]
        return samples


@dataclass(frozen=True, eq=False)
class Samples:
    """The checked samples of one call, without the masked ones, in arrays that share no memory with the caller's."""

    packing: Packing  # Its keys are those of the history: prompts, or pairs of prompt and stream
    reward: np.ndarray  # shape (N,)
    keep: np.ndarray | None  # of bool; which of the given samples are kept; None for all
    given: str = ""  # Names of the optional inputs, joined by "+"
    # shape (N,); weight of each completion: its importance ratio, its weight, or its weight times the squared ratio
    weight: np.ndarray | None = None
    divergence: np.ndarray | None = None  # shape (N,)
    version: np.ndarray | None = None  # of int, shape (N,); step of the policy that sampled each

    @classmethod
    def of(cls, prompt_ids: Any, rewards: Any, mask: Any = None, streams: Any = None, **optional: Any) -> Samples:
        """The samples of a call; ``optional`` are weights, importance, divergence and version, None if absent.

        Each stream of a prompt gets a row of its own. Errors are as for `kaestat.AdvantageEstimator.step`.
        """
        reward = check_column("rewards", rewards)
        keep = None if mask is None else check_mask(mask, len(reward))
        ids = check_ids("prompt_ids", prompt_ids, len(reward), keep)
        inputs = {name: column for name, column in optional.items() if column is not None}
        more: dict[str, Any] = _optional(inputs, len(reward), keep) if inputs else {}
        if streams is not None:
            ids = list(zip(ids, check_ids("stream_ids", streams, len(reward), keep), strict=True))
            more["given"] = "+".join(filter(None, [more.get("given"), "stream_ids"]))
        reward = check_limits("rewards", reward if keep is None else reward[keep])
        return cls(Packing.of(ids), reward, keep, **more)

    def scatter(self, samples: np.ndarray) -> np.ndarray:
        """Numbers of the samples put back among the masked ones, which get 0."""
        if self.keep is None:
            return samples
        scattered = np.zeros(len(self.keep))
        scattered[self.keep] = samples
        return scattered


def _optional(inputs: dict[str, Any], size: int, keep: np.ndarray | None) -> dict[str, Any]:
    """Weight, divergence and version of the samples, as far as they are given, and the names of the inputs."""
    columns: dict[str, Any] = {name: check_column(name, column, size, keep, least=0) for name, column in inputs.items()}
    weight, ratio = columns.pop("weights", None), columns.pop("importance", None)
    if ratio is not None:
        weight = ratio if weight is None else check_limits("weights * importance**2", weight * ratio**2)
    if weight is not None:
        columns["weight"] = weight
    if "version" in columns:
        version = columns["version"]
        if not ((version <= MAX_STEP) & (version == np.floor(version))).all():
            raise ValueError(f"version must hold steps: whole numbers from 0 to {MAX_STEP}.")
        columns["version"] = version.astype(np.int64)
    return columns | {"given": "+".join(name for name in inputs if name != "version")}


def is_weighted(given: str) -> bool:
    """Whether completions with these optional inputs (`Samples.given`) have weights."""
    return "weights" in given or "importance" in given


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
