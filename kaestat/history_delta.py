"""What has come into a history: visits as a table that can be added up, sent, and added to other histories."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from kaestat.checks import check_column
from kaestat.history_fields import MAX_STEP, stored_step
from kaestat.storage import decode_keys, dump_state, encode_keys, parse_state

MarkT = TypeVar("MarkT", bound=Hashable)


@dataclass(frozen=True, eq=False)
class HistoryDelta:
    """Sums over completions of prompts at steps, one entry for each visit.

    Merging is associative and commutative: the same visits and sums, up to the rounding of sums (none where rewards are
    0 and 1). So workers may exchange deltas in any order and in any grouping, each once.

    Attributes
    ----------
    keys : list of hashables
        Distinct prompts (or streams).
    row : ndarray of int, shape (K,)
        Position in ``keys`` of each visit.
    step : ndarray of int, shape (K,)
        Version of the policy that sampled it, negative before the run. No two visits have both ``row`` and ``step`` in
        common.
    sums : dict of ndarray of float64, shape (K,) each
        ``count, total, total_sq``, and the weighted sums where completions have weights.
    last_step : int
        The newest step of which the sender knows; -1 for none.
    with_streams : bool or None
        Whether the completions came with stream ids; None if that is not known.
    weighting : str or None
        Which of "weights" and "importance" they came with (`kaestat.samples.StepSamples`); None if that is not known.
    """

    keys: list[Hashable]
    row: np.ndarray
    step: np.ndarray
    sums: dict[str, np.ndarray]
    last_step: int
    with_streams: bool | None = None
    weighting: str | None = None

    def __len__(self) -> int:
        """Number of visits."""
        return len(self.row)

    def merge(self, other: HistoryDelta) -> HistoryDelta:
        """Both together, of different completions.

        Raises
        ------
        ValueError
            If they hold different sums, or differ in streams or weights.
        """
        return union([self, other])

    def plain(self) -> dict[str, Any]:
        """As plain data and NumPy arrays.

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
        }

    @classmethod
    def of_plain(cls, state: dict[str, Any]) -> HistoryDelta:
        """The inverse of `plain`.

        Raises
        ------
        ValueError
            If the parts do not fit together.
        """
        try:
            keys = decode_keys(state["keys"])
            row, step = _whole("row", state["row"]), _whole("step", state["step"], least=-MAX_STEP)
            sums = {name: check_column(name, column) for name, column in state["sums"].items()}
            marks = state["with_streams"], state["weighting"]
            delta = cls(keys, row, step, sums, stored_step(state["last_step"]), *marks)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"delta: not that of a history ({type(error).__name__}: {error}).") from error
        delta._check()
        return delta

    def to_bytes(self) -> bytes:
        """For sending: plain data and a checksum, no pickle; errors as `plain`."""
        return dump_state(self.plain())

    @classmethod
    def from_bytes(cls, content: bytes) -> HistoryDelta:
        """The inverse of `to_bytes`.

        Raises
        ------
        ValueError
            If the bytes are incomplete, altered, or something else.
        """
        return cls.of_plain(parse_state(content, "delta"))

    def _check(self) -> None:
        columns = (self.row, self.step, *self.sums.values())
        whole = {column.shape for column in columns} == {self.row.shape} and len(set(self.keys)) == len(self.keys)
        if not whole or self.row.max(initial=-1) >= len(self.keys) or self.step.max(initial=-1) > self.last_step:
            raise ValueError("delta: its parts do not fit together; it was altered.")
        if not all(np.isfinite(column).all() for column in self.sums.values()):
            raise ValueError("delta: its sums must be finite; it was altered.")
        if not (self.with_streams is None or isinstance(self.with_streams, bool)):
            raise ValueError(f"delta: with_streams must be True, False or None, got {self.with_streams!r}.")
        if not (self.weighting is None or isinstance(self.weighting, str)):
            raise ValueError(f"delta: weighting must be text or None, got {self.weighting!r}.")
        if len(np.unique(self.row * (2 * MAX_STEP + 1) + self.step)) < len(self):
            raise ValueError("delta: a prompt has two visits at one step; it was altered.")


def union(deltas: Sequence[HistoryDelta]) -> HistoryDelta:
    """All of several deltas together, of different completions.

    Raises
    ------
    ValueError
        If there is none, or they hold different sums, or differ in streams or weights.
    """
    if not deltas:
        raise ValueError("deltas: there is none to merge.")
    if len(deltas) == 1:
        return deltas[0]
    names = {frozenset(delta.sums) for delta in deltas if len(delta)} or {frozenset(deltas[0].sums)}
    if len(names) > 1:
        raise ValueError("deltas hold different sums: weights must be given by all workers or by none.")
    number: dict[Hashable, int] = {}
    for delta in deltas:
        for key in delta.keys:
            number.setdefault(key, len(number))
    rows = [_numbers(delta.keys, number)[delta.row] for delta in deltas]
    row, step = np.concatenate(rows), np.concatenate([delta.step for delta in deltas])
    (held,) = names
    columns = {name: np.concatenate([d.sums[name] for d in deltas if len(d)] or [np.zeros(0)]) for name in held}
    order = np.lexsort((step, row))
    row, step = row[order], step[order]
    first = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(step, prepend=-1) != 0))
    sums = {name: np.add.reduceat(column[order], first) if len(row) else column for name, column in columns.items()}
    return HistoryDelta(
        list(number),
        row[first],
        step[first],
        sums,
        max(delta.last_step for delta in deltas),
        common("stream_ids", *(delta.with_streams for delta in deltas)),
        common("weights and importance", *(delta.weighting for delta in deltas)),
    )


def together(deltas: Sequence[HistoryDelta], last_step: int) -> HistoryDelta:
    """`union`, or a delta without visits where there is none."""
    none = np.zeros(0, dtype=np.intp)
    return union(deltas) if deltas else HistoryDelta([], none, none, {}, last_step)


def common(name: str, *marks: MarkT | None) -> MarkT | None:
    """What all that is known of has in common; None if nothing is known.

    Raises
    ------
    ValueError
        If they differ.
    """
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
