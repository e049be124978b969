"""States of a `TrainerSession`, in files and of its last steps, and the error if a file is missing."""

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from kaestat.core.storage import load_state, save_state, unpack_arrays

Path = str | os.PathLike[str]
NEW_RUN = "begin a new run"
SAMPLER = "a prompt sampler"


class LostState(FileNotFoundError, ValueError):
    """The error for a resumed run whose checkpoint lacks the history or the prompt sampler."""


def lost_state(path: Path, what: str, remedy: str = NEW_RUN, *, anew: bool = False) -> None:
    """Raise a `LostState`, or warn with ``anew``, for a checkpoint that lacks the state to continue from."""
    if not anew:
        raise LostState(
            f"{os.fspath(path)}: this checkpoint was saved without {what}, which would begin anew in the middle of the "
            f"run. Resume from one that has it, or {remedy}."
        )
    # No logger: a dependency of vLLM sets the root logger to ERROR.
    warnings.warn(f"{os.fspath(path)} does not exist: {what} begins here.", stacklevel=4)


def save_whole(path: Path, estimator: Any, state: dict[str, Any]) -> None:
    """Write an estimator, or its state alone if a kernel or baseline of the user's own cannot be stored."""
    try:
        estimator.save(path)
    except TypeError:
        save_state(path, {"state": unpack_arrays(state)})


def state_in(path: Path, keys: Sequence[str], what: str) -> dict[str, Any]:
    """The state under the first of some keys found in a file; a ValueError if there is none or the file is damaged."""
    content = load_state(path)
    states = [content[key] for key in keys if isinstance(content.get(key), dict)]
    if not states:
        raise ValueError(f"{os.fspath(path)}: holds no state of {what}, as a trainer saves it.")
    return states[0]


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
