"""Worker processes that answer requests within limits of time and memory."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path
from queue import LifoQueue
from threading import Lock
from typing import Any

from .patience import Patience

BUDGET = 50.0
"""Seconds that slow requests may keep a pool waiting."""

_ROOT = Path(__file__).resolve().parents[2]
_KEPT = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "VIRTUAL_ENV"),
)
"""Environment variables that workers are given."""
_REPLIES = {"right": True, "wrong": False}


def default_workers() -> int:
    """Processes that suit this machine: its cores, shared with the other ranks of a distributed run on it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


class PassedOver(Enum):
    """The reply to a request that did not have all of its time: nothing is known of it."""

    PASSED_OVER = "skipped"


PASSED_OVER = PassedOver.PASSED_OVER
Reply = bool | PassedOver | None


class _Worker:
    """One process; started afresh (not forked), so that it is light and inherits no lock or device of its parent."""

    def __init__(self, module: str, memory_mib: int):
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_ROOT,
            env=_environment(),
            start_new_session=True,  # with a process group of its own, to be ended with its child
        )
        try:
            fault = self._exchange(memory_mib << 20)
        except (OSError, ValueError):
            fault = "it ended"
        if fault is not None:
            self.stop()
            raise RuntimeError(
                f"{module} could not start with memory_mib = {memory_mib}: {fault}; give it more memory."
            )

    def ask(self, request: Any, seconds: float) -> str:
        """What came of a request, see `worker_loop.serve`; ``died`` if the process has ended."""
        try:
            return self._exchange([request, seconds])
        except (OSError, ValueError):  # the process has ended
            self.stop()
            return "died"

    def _exchange(self, line: Any) -> Any:
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def stop(self) -> None:
        if self.process.stdout.closed:
            return  # its id may be another's by now
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # what was left unwritten is of no use to a dead process
                pipe.close()


class WorkerPool:
    """Processes that answer requests by yes or no, each within limits of time and memory.

    A request that exceeds a limit, or fails, is answered None, and the others go on. Where many are slow, the limit of
    time gets shorter, and requests that need more are `PASSED_OVER`: `Patience` bounds the time of all together.
    Processes start when first needed and end with `close`, with the pool, or with the interpreter. Safe to use from
    several threads; after a fork, the child starts processes of its own.

    module: Run by ``python -m``; calls `llm_experiments.verifiers.worker_loop.serve`.
    timeout: Seconds for each request.
    memory_mib: Address space of each process. Not enforced on macOS.
    workers: Processes, at most; None takes `default_workers`.
    budget: Seconds that slow requests may keep the pool waiting; a tenth of the time that passes is added again.
    """

    def __init__(
        self, module: str, *, timeout: float, memory_mib: int, workers: int | None = 1, budget: float = BUDGET
    ):
        workers = default_workers() if workers is None else workers
        if not (timeout > 0 and budget > 0):
            raise ValueError(f"timeout and budget must be positive (seconds), got {timeout!r} and {budget!r}.")
        if memory_mib < 1 or workers < 1:
            raise ValueError(f"memory_mib and workers must be at least 1, got {memory_mib!r} and {workers!r}.")
        self._module, self._memory_mib, self._timeout = module, int(memory_mib), float(timeout)
        self._n_workers, self._budget = workers, float(budget)
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._running: list[_Worker] = []
        self._lock = Lock()
        self._patience = Patience(timeout=self._timeout, budget=self._budget, workers=self._n_workers)
        # The last one back is the first one out: a process is started only where all that run are at work.
        self._slots: LifoQueue[_Worker | None] = LifoQueue()
        for _ in range(self._n_workers):
            self._slots.put(None)
        self._finalizer = weakref.finalize(self, _stop_all, self._running, self._pid)

    def ask(self, requests: Sequence[Any], *, patient: bool = False) -> list[Reply]:
        """The reply to each request, in order; None where it failed or exceeded a limit, or `PASSED_OVER`.

        patient: Whether each has all of its time, however long that takes together; none is skipped.
        Raises RuntimeError if a process can not start.
        """
        if os.getpid() != self._pid:
            self._finalizer.detach()
            self._reset()
        if self._n_workers == 1 or len(requests) < 2:
            replies = [self._reply(request, patient) for request in requests]
        else:
            with ThreadPoolExecutor(min(self._n_workers, len(requests))) as threads:
                replies = list(threads.map(partial(self._reply, patient=patient), requests))
        if passed_over := replies.count(PASSED_OVER):
            warnings.warn(
                f"{passed_over} of {len(requests)} requests were skipped, as slow ones had used up the "
                f"{self._budget:g} s that they may take together; {replies.count(None)} exceeded a limit or failed. "
                "Raise budget or workers if these are no hostile texts.",
                RuntimeWarning,
                stacklevel=2,
            )
        return replies

    def _reply(self, request: Any, patient: bool) -> Reply:
        limit = self._timeout if patient else self._patience.limit()
        outcome = self._ask(request, limit)
        if outcome == "died":  # the system may have ended it for another process's sake
            outcome = self._ask(request, limit)
        if outcome == "late" and limit < self._timeout:
            return PASSED_OVER
        return _REPLIES.get(outcome)

    def _ask(self, request: Any, seconds: float) -> str:
        worker = self._slots.get()
        try:
            if worker is None or worker.process.poll() is not None:  # closed, or killed while it was idle
                worker = self._drop(worker)
                worker = _Worker(self._module, self._memory_mib)
                with self._lock:
                    self._running.append(worker)
            begin = time.monotonic()
            outcome = worker.ask(request, seconds)
            self._patience.spend(time.monotonic() - begin)
            return outcome
        except BaseException:  # an interrupted exchange would leave its reply to the next request
            worker = self._drop(worker)
            raise
        finally:
            self._slots.put(worker)

    def _drop(self, worker: _Worker | None) -> None:
        if worker is not None:
            worker.stop()
            with self._lock:
                if worker in self._running:
                    self._running.remove(worker)

    def processes(self) -> list[int]:
        """Process ids of the workers that run now."""
        with self._lock:
            return [worker.process.pid for worker in self._running]

    def close(self) -> None:
        """End the processes; a later request starts new ones."""
        _stop_all(self._running, self._pid)


def _environment() -> dict[str, str]:
    """What a worker needs to find Python and its packages, and none of the secrets that an environment holds."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return kept | threads | {"PYTHONHASHSEED": "0"}  # a replacement must do as its predecessor did


def _stop_all(running: list[_Worker], owner: int) -> None:
    if os.getpid() == owner:  # a forked child's exit must not end its parent's workers
        while running:
            running.pop().stop()
