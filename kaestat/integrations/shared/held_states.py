"""States of the last steps, for trainers that save a step after later ones have begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class HeldStates:
    """The states after each of the last ``kept`` steps; 0 holds none."""

    def __init__(self, kept: int):
        self.kept = kept
        self._states: dict[int, Callable[[], dict[str, Any]]] = {}

    def __len__(self) -> int:
        """How many are held."""
        return len(self._states)

    def put(self, step: int, state: Callable[[], dict[str, Any]]) -> None:
        """Add the state after a step, and drop the oldest."""
        if self.kept:
            states = self._states | {step: state}
            # A new dict each time: some trainers ask for a state from another thread.
            self._states = {at: states[at] for at in sorted(states)[-self.kept :]}

    def of(self, step: int) -> Callable[[], dict[str, Any]] | None:
        """The state after exactly that step; None if it is not held."""
        return self._states.get(step)

    def after(self, step: int, newest: int) -> Callable[[], dict[str, Any]]:
        """The state after a step, or after the last one before it; a ValueError if it is no longer held.

        ``newest`` is the last step recorded, for the message.
        """
        held = [at for at in self._states if at <= step]
        if not held:
            raise ValueError(
                f"step {step}: {newest} has been recorded since, and of the states in between those after "
                f"{sorted(self._states) or 'no step'} are held; raise states_kept."
            )
        return self._states[max(held)]

    def clear(self) -> None:
        """Drop all states."""
        self._states = {}
