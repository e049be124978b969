"""Objects that one thread may change while another saves them."""

import threading
from typing import Any


class Locked:
    """An object with a lock that belongs to one process: copies and unpickled objects get a new lock.

    The thread that has the lock may take it again, so an object may call another one that shares its lock.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the lock."""
        return {name: value for name, value in vars(self).items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The inverse, with a new lock."""
        vars(self).update(state)
        self.lock = threading.RLock()
