"""The deltas that a history already holds: for each sender its newest number, and the gaps before that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Origin = tuple[str, int]
_MOST = 2**53  # numbers of a state are JSON's


@dataclass(frozen=True)
class Received:
    """The numbers of received deltas, by sender.

    A delta that never arrives is one gap, so the record does not grow with the run.
    """

    newest: dict[str, int] = field(default_factory=dict)  # The largest number of each sender; numbers begin at 1
    # First and last number of each range before it that has not arrived, in order; senders without gaps are absent
    gaps: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def __contains__(self, origin: Origin) -> bool:
        """Whether a sender's number has arrived."""
        sender, number = origin
        missing = self.gaps.get(sender, ())
        return number <= self.newest.get(sender, 0) and not any(first <= number <= last for first, last in missing)

    def next_of(self, sender: str) -> Origin:
        """The number after a sender's newest one."""
        return sender, self.newest.get(sender, 0) + 1

    def joined(self, origins: Iterable[Origin]) -> Received:
        """The numbers with further ones, some of which may be known already."""
        newest, gaps = dict(self.newest), dict(self.gaps)
        for sender, number in origins:
            top, missing = newest.get(sender, 0), gaps.pop(sender, ())
            if number > top:
                newest[sender] = number
                missing = (*missing, (top + 1, number - 1))
            else:
                missing = tuple(piece for gap in missing for piece in _without(number, *gap))
            missing = tuple((first, last) for first, last in missing if first <= last)
            if missing:
                gaps[sender] = missing
        return Received(newest, gaps)

    def plain(self) -> dict[str, Any]:
        """The numbers as plain data: for each sender its newest number, then the ends of its gaps."""
        return {
            sender: [newest, *(end for gap in self.gaps.get(sender, ()) for end in gap)]
            for sender, newest in self.newest.items()
        }

    @classmethod
    def of_plain(cls, state: Any) -> Received:
        """The inverse of `plain`; a ValueError if it is not valid."""
        newest, gaps = {}, {}
        if not isinstance(state, dict):
            raise ValueError(f"state: received deltas must be listed by sender, got {state!r}; the state was altered.")
        for sender, numbers in state.items():
            whole = isinstance(numbers, list) and len(numbers) % 2 == 1 and all(type(n) is int for n in numbers)
            ends = [0, *numbers[1:], numbers[0]] if whole else []
            pairs = tuple(zip(ends[1:-1:2], ends[2:-1:2], strict=True))
            ordered = all(first <= last for first, last in pairs)
            apart = all(last < first for last, first in zip(ends[::2], ends[1::2], strict=True))
            if not (whole and ordered and apart and numbers[0] < _MOST):
                raise ValueError(
                    f"state: received deltas of {sender!r} are not numbers and gaps; the state was altered."
                )
            newest[sender] = numbers[0]
            if pairs:
                gaps[sender] = pairs
        return cls(newest, gaps)


def _without(number: int, first: int, last: int) -> tuple[tuple[int, int], ...]:
    """A gap after a number has arrived; parts of it may be empty."""
    return ((first, number - 1), (number + 1, last)) if first <= number <= last else ((first, last),)
