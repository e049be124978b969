"""Worker processes that answer requests within limits of time and memory, and are replaced when they exceed them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import warnings
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import LifoQueue
from threading import Lock
from typing import Any

from .patience import Patience

BUDGET = 60.0
"""Seconds that slow requests may keep a pool waiting."""

_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 120.0


def default_workers() -> int:
    """Processes that suit this machine: its cores, shared with the other ranks of a distributed run on it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


@dataclass(frozen=True)
class Unanswered:
    """Requests that came to nothing.

    Attributes
    ----------
    exceeded : int
        Those that exceeded a limit of time or memory, or ended their process in any other way.
    passed_over : int
        Those that were not looked at, as slow ones had used up the time of all.
    """

    exceeded: int = 0
    passed_over: int = 0


class _Died(Exception):
    """The worker ended, or was ended at its limit of time."""


class _Worker:
    """One process; started afresh (not forked), so that it is light and inherits no lock or device of its parent."""

    def __init__(self, module: str, arguments: dict, seconds: float, memory_mib: int):
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
        environment["PYTHONHASHSEED"] = "0"  # a replacement must do as its predecessor did
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_ROOT,
            env=environment | threads,
        )
        begin = time.monotonic()
        self._buffer = b""
        # The alarm inside the worker comes second: the process that asks ends it first, unless it is gone itself.
        settings = {"memory_bytes": memory_mib << 20, "seconds": seconds + 1.0, "arguments": arguments}
        try:
            reply = self.ask(settings, _START_SECONDS)
        except _Died:
            self.stop()
            raise RuntimeError(
                f"{module} did not start in {_START_SECONDS:.0f} s with memory_mib = {memory_mib}; give it more memory."
            ) from None
        if "error" in reply:
            self.stop()
            raise RuntimeError(f"{module} could not start with memory_mib = {memory_mib}: {reply['error']}")
        self.start_seconds = time.monotonic() - begin

    def ask(self, request: Any, seconds: float) -> dict:
        """The reply to one request; raises `_Died` where none comes in time."""
        deadline = time.monotonic() + seconds
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise _Died from None
        descriptor = self.process.stdout.fileno()
        poll = select.poll()  # unlike select(), fit for descriptors above 1024
        poll.register(descriptor, select.POLLIN)
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise _Died
            received = os.read(descriptor, 65536)
            if not received:
                raise _Died
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass  # what was left unwritten is of no use to a dead process


class WorkerPool:
    """Processes that answer requests, each within limits of time and memory.

    A request that exceeds a limit, or that ends its process in any other way, is answered None; the process is replaced
    and the other requests go on. Where many are slow, the limit of time gets shorter, until the requests that are left
    are answered None without being looked at: together they wait no longer than `Patience` says. Processes start when
    first needed and end with `close`, with the pool, or with the interpreter. Safe to use from several threads; after a
    fork, the child starts processes of its own.

    Parameters
    ----------
    module : str
        Run by ``python -m``; calls `llm_experiments.verifiers.worker_loop.serve`.
    arguments : dict
        Of the module's ``prepare``; as JSON.
    timeout : float
        Seconds for each request.
    memory_mib : int
        Address space of each process. Not enforced on macOS.
    workers : int or None
        Processes, at most; None takes `default_workers`.
    budget : float
        Seconds that slow requests may keep the pool waiting; a tenth of the time that passes is added again.
    """

    def __init__(
        self,
        module: str,
        arguments: dict,
        *,
        timeout: float,
        memory_mib: int,
        workers: int | None = 1,
        budget: float = BUDGET,
    ):
        workers = default_workers() if workers is None else workers
        if not (timeout > 0 and budget > 0):
            raise ValueError(f"timeout and budget must be positive (seconds), got {timeout!r} and {budget!r}.")
        if memory_mib < 1 or workers < 1:
            raise ValueError(f"memory_mib and workers must be at least 1, got {memory_mib!r} and {workers!r}.")
        self._making = (module, arguments, float(timeout), int(memory_mib))
        self._n_workers, self._budget = workers, float(budget)
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._running: list[_Worker] = []
        self._lock = Lock()
        self._patience = Patience(timeout=self._making[2], budget=self._budget, workers=self._n_workers)
        self._exceeded = self._passed_over = 0
        # The last one back is the first one out: a process is started only where all that run are at work.
        self._slots: LifoQueue[_Worker | None] = LifoQueue()
        for _ in range(self._n_workers):
            self._slots.put(None)
        self._finalizer = weakref.finalize(self, _stop_all, self._running, self._pid)

    def ask(self, requests: Sequence[Any], *, patient: bool = False) -> list[Any]:
        """The reply to each request, in order; None where it failed, exceeded a limit, or was passed over.

        Parameters
        ----------
        requests : sequence
        patient : bool
            For requests of one's own making: each has all of its time, and uses up none of the others'.

        Raises
        ------
        RuntimeError
            If a process can not start.
        """
        if os.getpid() != self._pid:
            self._finalizer.detach()
            self._reset()
        passed_over = self._passed_over
        if self._n_workers == 1 or len(requests) < 2:
            replies = [self._ask(request, patient) for request in requests]
        else:
            with ThreadPoolExecutor(min(self._n_workers, len(requests))) as threads:
                replies = list(threads.map(lambda request: self._ask(request, patient), requests))
        if self._passed_over > passed_over:
            warnings.warn(
                f"{self._passed_over - passed_over} requests were passed over, as slow ones had used up the "
                f"{self._budget:g} s that they may take together; {self._exceeded} exceeded a limit so far. Raise "
                "budget or workers if these are no hostile texts.",
                RuntimeWarning,
                stacklevel=2,
            )
        return replies

    def unanswered(self) -> Unanswered:
        """How many requests came to nothing since the pool was made."""
        return Unanswered(self._exceeded, self._passed_over)

    def _ask(self, request: Any, patient: bool) -> Any:
        worker = self._slots.get()
        try:
            limit = self._making[2] if patient else self._patience.limit()
            if limit == 0:
                with self._lock:
                    self._passed_over += 1
                return None
            if worker is not None and worker.process.poll() is not None:  # ended while idle: not this request's doing
                worker = self._drop(worker)
            if worker is None:
                worker = _Worker(*self._making)
                with self._lock:
                    self._running.append(worker)
            begin = time.monotonic()
            reply = worker.ask(request, limit).get("reply")
            if not patient:
                self._patience.spend(time.monotonic() - begin)
            return reply
        except _Died:
            with self._lock:
                self._exceeded += 1
            if not patient:
                self._patience.spend(time.monotonic() - begin, ended=worker.start_seconds)
            worker = self._drop(worker)
            return None
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


def _stop_all(running: list[_Worker], owner: int) -> None:
    if os.getpid() == owner:  # a forked child's exit must not end its parent's workers
        while running:
            running.pop().stop()
