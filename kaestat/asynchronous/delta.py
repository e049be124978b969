"""What calls have recorded: visits in tables, to send to others and to add to their histories."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kaestat.asynchronous.received_deltas import Origin
from kaestat.core.checks import LARGEST_WHOLE, MAX_STEP, check_column
from kaestat.core.samples import is_weighted
from kaestat.core.storage import decode_keys, dump_state, encode_keys, parse_state, reading
from kaestat.history.fields import PLAIN_FIELDS, WEIGHTED_FIELDS, about, checked_sums, stored_center, stored_step

SUMS = set(PLAIN_FIELDS) - {"step"}


@dataclass(frozen=True, eq=False)
class RecordedVisits:
    """Sums over completions of prompts at steps.

    Attributes
    ----------
    keys : list of hashables
        Distinct prompts (or streams).
    row : ndarray of int, shape (K,)
        Position in ``keys`` of each visit.
    step : ndarray of int, shape (K,)
        Version of the policy that sampled it, negative before the run.
    sums : dict of ndarray of float64, shape (K,) each
        ``count, total, total_sq``, and the weighted sums where completions have weights.
    center : float
        What is subtracted from the rewards in the sums.
    """

    keys: list[Hashable]
    row: np.ndarray
    step: np.ndarray
    sums: dict[str, np.ndarray]
    center: float = 0.0

    def plain(self) -> dict[str, Any]:
        """The visits as plain data and NumPy arrays; a TypeError if a prompt id cannot be stored."""
        columns = {"row": self.row.astype(np.int32), "step": self.step.astype(np.int32)}
        return columns | {"keys": encode_keys(self.keys), "sums": self.sums, "center": self.center}

    @classmethod
    def of_plain(cls, state: dict[str, Any]) -> RecordedVisits:
        """The inverse of `plain`; a ValueError if the parts are inconsistent."""
        keys, row, step = decode_keys(state["keys"]), _whole("row", state["row"]), _whole("step", state["step"])
        sums = checked_sums(state["sums"], len(row))
        if row.shape != step.shape or len(set(keys)) < len(keys) or not ((row >= 0) & (row < len(keys))).all():
            raise ValueError("delta: its parts do not fit together; it is corrupted.")
        return cls(keys, row, step, sums, stored_center(state["center"]))

    @classmethod
    def joined(cls, tables: Sequence[RecordedVisits]) -> RecordedVisits:
        """All visits of one or more tables, of which several may belong to one prompt and step."""
        number: dict[Hashable, int] = {}
        rows = []
        for table in tables:
            place = [number.setdefault(key, len(number)) for key in table.keys]
            rows.append(np.array(place, dtype=np.intp)[table.row])
        center = tables[0].center
        each = [about(table.sums, center - table.center) for table in tables]
        sums = {name: np.concatenate([of_one[name] for of_one in each]) for name in each[0]}
        return cls(list(number), np.concatenate(rows), np.concatenate([table.step for table in tables]), sums, center)


@dataclass(frozen=True, eq=False)
class HistoryDelta:
    """What calls of `step` and `observe` have recorded, for others to merge.

    Each call is a part, and its origin is the sender and a number. A part counts once, no matter how often it arrives.
    So merging is associative and commutative, and workers may exchange deltas in any order and in any grouping.

    Attributes
    ----------
    parts : dict
        The `RecordedVisits` of each call, by origin: sender and number.
    last_step : int
        The newest step known to the sender; -1 for none.
    given : str or None
        Optional inputs of the completions, such as "weights" (`kaestat.core.samples.Samples`); None if unknown.
    """

    parts: dict[Origin, RecordedVisits] = field(default_factory=dict)
    last_step: int = -1
    given: str | None = None

    def __len__(self) -> int:
        """Number of visits."""
        return sum(len(part.row) for part in self.parts.values())

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Sender and number of each part."""
        return tuple(self.parts)

    def merge(self, other: HistoryDelta) -> HistoryDelta:
        """Both deltas together; a part with the same origin in both counts once.

        Raises
        ------
        ValueError
            If they differ in streams or weights.
        """
        given = common_inputs(self.given, other.given)
        return HistoryDelta(self.parts | other.parts, max(self.last_step, other.last_step), given)

    def without(self, received: Container[Origin]) -> HistoryDelta:
        """The delta without the parts already received."""
        return replace(self, parts={origin: part for origin, part in self.parts.items() if origin not in received})

    def plain(self) -> dict[str, Any]:
        """The delta as plain data and NumPy arrays.

        Raises
        ------
        TypeError
            If a prompt id cannot be stored.
        """
        parts = {str(n): part.plain() for n, part in enumerate(self.parts.values())}
        marks = {"last_step": self.last_step, "given": self.given}
        return {"parts": parts, "origins": [list(each) for each in self.parts]} | marks

    @classmethod
    @reading("delta")
    def of_plain(cls, state: dict[str, Any]) -> HistoryDelta:
        """The inverse of `plain`.

        Raises
        ------
        ValueError
            If the parts are inconsistent.
        """
        origins = [(sender, number) for sender, number in state["origins"]]
        tables = [RecordedVisits.of_plain(part) for part in state["parts"].values()]
        last_step, given = stored_step(state["last_step"]), state["given"]
        if not all(isinstance(sender, str) and type(n) is int and 0 < n < LARGEST_WHOLE for sender, n in origins):
            raise ValueError("delta: its origins must be senders and numbers; it is corrupted.")
        if not (given is None or isinstance(given, str)):
            raise ValueError(f"delta: given must be text or None, got {given!r}.")
        names = SUMS | set(WEIGHTED_FIELDS if is_weighted(given or "") else ())
        if any(table.step.max(initial=-1) > last_step or set(table.sums) != names for table in tables):
            raise ValueError("delta: its parts do not fit together; it is corrupted.")
        return cls(dict(zip(origins, tables, strict=True)), last_step, given)

    def to_bytes(self) -> bytes:
        """The delta as bytes to send: plain data and a checksum, no pickle; errors as `plain`."""
        return dump_state(self.plain())

    @classmethod
    def from_bytes(cls, content: bytes) -> HistoryDelta:
        """The inverse of `to_bytes`.

        Raises
        ------
        ValueError
            If the bytes are incomplete, corrupted, or not a delta.
        """
        return cls.of_plain(parse_state(content, "delta"))


def common_inputs(one: str | None, other: str | None) -> str | None:
    """The optional inputs of both, where they are known; a ValueError if they differ."""
    if None not in (one, other) and one != other:
        raise ValueError("weights, importance and stream_ids must each be given by all workers or by none.")
    return other if one is None else one


def _whole(name: str, column: Any) -> np.ndarray:
    array = check_column(name, column)
    if not ((abs(array) <= MAX_STEP) & (array == np.floor(array))).all():
        raise ValueError(f"delta: {name} must hold whole numbers; it is corrupted.")
    return array.astype(np.intp)
