"""How long slow requests may keep a pool waiting: a store of seconds that they use up, and that time refills."""

import time
from threading import Lock

QUICK = 0.1
"""Share of its limit of time that each request has, however slow the others are."""

REFILL = 0.1
"""Seconds that come back in each second."""


class Patience:
    """Limits of time for requests, which get shorter when many are slow.

    However slow they are, ``n`` requests on ``workers`` processes take no longer than about
    ``(n * QUICK * timeout / workers + budget) / (1 - REFILL)`` seconds together. Safe to use from several threads.

    timeout: Seconds for a request, as long as half of the budget is left; from there on, in proportion to what is left.
    budget: Seconds of each worker.
    """

    def __init__(self, *, timeout: float, budget: float, workers: int):
        self._timeout, self._full, self._workers = timeout, budget * workers, workers
        self._left, self._at, self._lock = self._full, time.monotonic(), Lock()

    def limit(self) -> float:
        """Seconds for the next request."""
        with self._lock:
            return self._timeout * min(1.0, max(QUICK, 2 * self._refilled() / self._full))

    def spend(self, seconds: float) -> None:
        """Count the time of a request, if it was not quick."""
        with self._lock:
            self._left = self._refilled() - max(0.0, seconds - QUICK * self._timeout)

    def _refilled(self) -> float:
        now = time.monotonic()
        self._left = min(self._full, self._left + REFILL * self._workers * (now - self._at))
        self._at = now
        return self._left
