"""New entries of a history: visits in a table to add up, send, and add to other histories."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from kaestat.asynchronous.received_deltas import Origin, Received
from kaestat.core.checks import MAX_STEP, check_column
from kaestat.core.storage import decode_keys, dump_state, encode_keys, parse_state, reading
from kaestat.history.fields import about, stored_center, stored_step

_UNKNOWN = np.zeros(0, dtype=np.intp)
MarkT = TypeVar("MarkT", bound=Hashable)


@dataclass(frozen=True, eq=False)
class HistoryDelta:
    """Sums over completions of prompts at steps, one entry for each visit.

    Merging is associative and commutative: any order gives the same visits and sums, up to the rounding of sums
    (exactly for rewards 0 and 1). So workers may exchange deltas in any order and in any grouping. Each part has an
    origin, the sender and a number. It counts once, no matter how often it arrives.

    Attributes
    ----------
    keys : list of hashables
        Distinct prompts (or streams).
    row : ndarray of int, shape (K,)
        Position in ``keys`` of each visit.
    step : ndarray of int, shape (K,)
        Version of the policy that sampled it, negative before the run. No two visits have ``row``, ``step`` and
        ``part`` in common.
    sums : dict of ndarray of float64, shape (K,) each
        ``count, total, total_sq``, and the weighted sums where completions have weights.
    last_step : int
        The newest step known to the sender; -1 for none.
    with_streams : bool or None
        Whether the completions had stream ids; None if unknown.
    weighting : str or None
        Which of "weights" and "importance" they had (`kaestat.core.samples.StepSamples`); None if
        unknown.
    origins : tuple of (str, int)
        Sender and number of each part, that is, of each call that recorded. Parts without an origin count every time.
    part : ndarray of int, shape (K,), optional
        Position in ``origins`` of each visit; -1, the default for all, for visits without an origin.
    center : float
        What is subtracted from the rewards in the sums.
    """

    keys: list[Hashable]
    row: np.ndarray
    step: np.ndarray
    sums: dict[str, np.ndarray]
    last_step: int
    with_streams: bool | None = None
    weighting: str | None = None
    origins: tuple[Origin, ...] = ()
    part: np.ndarray = field(default_factory=lambda: _UNKNOWN)
    center: float = 0.0

    def __post_init__(self) -> None:
        if self.part is _UNKNOWN:
            object.__setattr__(self, "part", np.full(len(self.row), -1))

    def __len__(self) -> int:
        """Number of visits."""
        return len(self.row)

    def merge(self, other: HistoryDelta) -> HistoryDelta:
        """Both deltas together; a part with the same origin in both counts once.

        Raises
        ------
        ValueError
            If they hold different sums, or differ in streams or weights.
        """
        return union([self, other])

    def plain(self) -> dict[str, Any]:
        """The delta as plain data and NumPy arrays.

        Raises
        ------
        TypeError
            If a prompt id cannot be stored.
        """
        return {
            "keys": encode_keys(self.keys),
            "row": self.row.astype(np.int32),
            "step": self.step.astype(np.int32),
            "sums": self.sums,
            "last_step": self.last_step,
            "with_streams": self.with_streams,
            "weighting": self.weighting,
            "origins": [list(origin) for origin in self.origins],
            "part": self.part.astype(np.int32),
            "center": self.center,
        }

    def from_sender(self, origin: Origin) -> HistoryDelta:
        """The same visits with one sender and number."""
        return replace(self, origins=(origin,), part=np.zeros(len(self), dtype=np.intp))

    def without(self, received: Received | frozenset[Origin]) -> HistoryDelta:
        """The delta without the parts already received."""
        return self._of_parts([origin not in received for origin in self.origins])

    def plain_visits(self) -> HistoryDelta:
        """One visit for each prompt and step, without origins."""
        return _summed(replace(self, origins=(), part=np.full(len(self), -1)))

    def _of_parts(self, chosen: Sequence[bool]) -> HistoryDelta:
        """Some of the parts, and the visits without an origin."""
        if all(chosen):
            return self
        place = np.append(np.cumsum(chosen, dtype=np.intp) - 1, -1)  # the last is that of visits without an origin
        kept = np.append(chosen, True)[self.part]
        number: dict[Hashable, int] = {}
        for row in self.row[kept].tolist():
            number.setdefault(self.keys[row], len(number))
        return replace(
            self,
            keys=list(number),
            row=np.array([number[self.keys[row]] for row in self.row[kept].tolist()], dtype=np.intp),
            step=self.step[kept],
            sums={name: column[kept] for name, column in self.sums.items()},
            origins=tuple(origin for origin, known in zip(self.origins, chosen, strict=True) if known),
            part=place[self.part[kept]],
        )

    @classmethod
    @reading("delta")
    def of_plain(cls, state: dict[str, Any]) -> HistoryDelta:
        """The inverse of `plain`.

        Raises
        ------
        ValueError
            If the parts are inconsistent.
        """
        keys = decode_keys(state["keys"])
        row, step = _whole("row", state["row"]), _whole("step", state["step"], least=-MAX_STEP)
        sums = {name: check_column(name, column) for name, column in state["sums"].items()}
        marks = state["with_streams"], state["weighting"]
        origins = tuple((sender, number) for sender, number in state["origins"])
        part, center = _whole("part", state["part"], least=-1), stored_center(state["center"])
        delta = cls(keys, row, step, sums, stored_step(state["last_step"]), *marks, origins, part, center)
        delta._check()
        return delta

    def to_bytes(self) -> bytes:
        """The delta as bytes to send: plain data and a checksum, no pickle; errors as `plain`."""
        return dump_state(self.plain())

    @classmethod
    def from_bytes(cls, content: bytes) -> HistoryDelta:
        """The inverse of `to_bytes`.

        Raises
        ------
        ValueError
            If the bytes are incomplete, altered, or not a delta.
        """
        return cls.of_plain(parse_state(content, "delta"))

    def _check(self) -> None:
        columns = (self.row, self.step, self.part, *self.sums.values())
        whole = {column.shape for column in columns} == {self.row.shape} and len(set(self.keys)) == len(self.keys)
        if not whole or self.row.max(initial=-1) >= len(self.keys) or self.step.max(initial=-1) > self.last_step:
            raise ValueError("delta: its parts do not fit together; it was altered.")
        if not all(np.isfinite(column).all() for column in self.sums.values()):
            raise ValueError("delta: its sums must be finite; it was altered.")
        if not (self.with_streams is None or isinstance(self.with_streams, bool)):
            raise ValueError(f"delta: with_streams must be True, False or None, got {self.with_streams!r}.")
        if not (self.weighting is None or isinstance(self.weighting, str)):
            raise ValueError(f"delta: weighting must be text or None, got {self.weighting!r}.")
        known = all(isinstance(sender, str) and type(n) is int and n > 0 for sender, n in self.origins)
        if not known or len(set(self.origins)) < len(self.origins) or self.part.max(initial=-1) >= len(self.origins):
            raise ValueError("delta: its origins must be distinct senders and numbers; it was altered.")
        if len(order_by(self.row, self.step, self.part)[1]) < len(self):
            raise ValueError("delta: a prompt has two visits at one step; it was altered.")


def union(deltas: Sequence[HistoryDelta]) -> HistoryDelta:
    """All of several deltas together; parts with the same origin count once.

    A ValueError if there is no delta, or they hold different sums, or differ in streams or weights.
    """
    if not deltas:
        raise ValueError("deltas: give at least one.")
    if len(deltas) == 1:
        return deltas[0]
    names = {frozenset(delta.sums) for delta in deltas if len(delta)} or {frozenset(deltas[0].sums)}
    if len(names) > 1:
        raise ValueError("deltas hold different sums: weights must be given by all workers or by none.")
    marks = (
        max(delta.last_step for delta in deltas),
        common("stream_ids", *(delta.with_streams for delta in deltas)),
        common("weights and importance", *(delta.weighting for delta in deltas)),
    )
    place: dict[Origin, int] = {}
    number: dict[Hashable, int] = {}
    parts, rows = [], []
    new = [_new_parts(delta, place) for delta in deltas]
    for delta in new:
        for key in delta.keys:
            number.setdefault(key, len(number))
        rows.append(_numbers(delta.keys, number)[delta.row])
        parts.append(np.array([*(place[origin] for origin in delta.origins), -1])[delta.part])
    (held,) = names
    center = next((delta.center for delta in new if len(delta)), 0.0)
    each = [about(delta.sums, center - delta.center) for delta in new if len(delta)]
    sums = {name: np.concatenate([of_one[name] for of_one in each] or [np.zeros(0)]) for name in held}
    step = np.concatenate([delta.step for delta in new])
    row, part = np.concatenate(rows), np.concatenate(parts)
    whole = HistoryDelta(list(number), row, step, sums, *marks, tuple(place), part, center)
    return _summed(whole)


def _new_parts(delta: HistoryDelta, place: dict[Origin, int]) -> HistoryDelta:
    """The parts of a delta that have no place yet; they are given one."""
    new = delta._of_parts([origin not in place for origin in delta.origins])
    for origin in new.origins:
        place[origin] = len(place)
    return new


def _summed(delta: HistoryDelta) -> HistoryDelta:
    """One visit for each prompt, step and part."""
    order, first = order_by(delta.row, delta.step, delta.part)
    if len(first) == 0:
        return delta
    sums = {name: np.add.reduceat(column[order], first) for name, column in delta.sums.items()}
    kept = order[first]
    return replace(delta, row=delta.row[kept], step=delta.step[kept], sums=sums, part=delta.part[kept])


def order_by(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of rows by their columns, and where in it a new one begins."""
    order = np.lexsort(columns[::-1])
    new = np.zeros(len(order), dtype=bool)
    new[:1] = True
    for column in columns:
        new[1:] |= np.diff(column[order]) != 0
    return order, np.flatnonzero(new)


def concat(deltas: Sequence[HistoryDelta], last_step: int) -> HistoryDelta:
    """The `union`, or a delta without visits if there are no deltas."""
    none = np.zeros(0, dtype=np.intp)
    return union(deltas) if deltas else HistoryDelta([], none, none, {}, last_step)


def common(name: str, *marks: MarkT | None) -> MarkT | None:
    """The common value of those that are not None; None if all are; a ValueError if they differ."""
    known = {mark for mark in marks if mark is not None}
    if len(known) > 1:
        raise ValueError(f"{name} must be given by all workers or by none.")
    return next(iter(known), None)


def _numbers(keys: list[Hashable], number: dict[Hashable, int]) -> np.ndarray:
    return np.fromiter(map(number.__getitem__, keys), dtype=np.intp, count=len(keys))


def _whole(name: str, column: Any, least: int = 0) -> np.ndarray:
    array = check_column(name, column)
    if not ((array >= least) & (array <= MAX_STEP) & (array == np.floor(array))).all():
        raise ValueError(f"delta: {name} must hold whole numbers, {least} or more; it was altered.")
    return array.astype(np.intp)
