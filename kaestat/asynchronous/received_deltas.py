"""The deltas that a history already holds: ranges of numbers for each sender."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kaestat.core.checks import LARGEST_WHOLE

Origin = tuple[str, int]
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Received:
    """The numbers of received deltas, by sender.

    A delta that never arrives splits a range in two, so the record does not grow with the run.
    """

    # First and last number of each range, in order; between two ranges lies a number that has not arrived
    ranges: dict[str, Ranges] = field(default_factory=dict)

    def __contains__(self, origin: Origin) -> bool:
        """Whether a sender's number has arrived."""
        sender, number = origin
        return any(first <= number <= last for first, last in self.ranges.get(sender, ()))

    def next_of(self, sender: str) -> Origin:
        """The number after a sender's newest one; numbers begin at 1."""
        return sender, self.ranges[sender][-1][1] + 1 if sender in self.ranges else 1

    def joined(self, origins: Iterable[Origin]) -> Received:
        """The numbers with further ones, some of which may have arrived already."""
        ranges = dict(self.ranges)
        for sender, number in origins:
            ranges[sender] = _merged((*ranges.get(sender, ()), (number, number)))
        return Received(ranges)

    def plain(self) -> dict[str, Any]:
        """The numbers as plain data: for each sender the ends of its ranges."""
        return {sender: [end for ends in ranges for end in ends] for sender, ranges in self.ranges.items()}

    @classmethod
    def of_plain(cls, state: Any) -> Received:
        """The inverse of `plain`; a ValueError if it is not valid."""
        if not isinstance(state, dict):
            raise ValueError(f"state: received deltas must be listed by sender, got {state!r}; the state is corrupted.")
        ranges = {}
        for sender, ends in state.items():
            whole = isinstance(ends, list) and len(ends) > 0 and all(type(end) is int for end in ends)
            ordered = whole and ends == sorted(ends) and 1 <= ends[0] and ends[-1] < LARGEST_WHOLE
            ranges[sender] = tuple(zip(ends[::2], ends[1::2], strict=False)) if ordered else ()
            if not ordered or len(ends) % 2 or _merged(ranges[sender]) != ranges[sender]:
                raise ValueError(f"state: received deltas of {sender!r} are not ranges; the state is corrupted.")
        return cls(ranges)


def _merged(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """The ranges in order, those that touch as one."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return tuple(merged)
