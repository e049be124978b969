"""What one thread computes and another one saves."""

from __future__ import annotations

import threading
from typing import Any


class Locked:
    """An object with a lock of its own, which belongs to a process: one that is pickled gets a new one.

    Whoever holds the lock may take it again: what wraps an object works under the object's own lock.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the lock."""
        return {name: value for name, value in vars(self).items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The inverse, with a lock of its own."""
        vars(self).update(state)
        self.lock = threading.RLock()
