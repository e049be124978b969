"""Worker processes that answer requests within limits of time and memory, and are replaced when they exceed them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 120.0


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
    and the other requests go on. Processes start when first needed and end with `close`, with the pool, or with the
    interpreter. Safe to use from several threads; after a fork, the child starts processes of its own.

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
    workers : int
        Processes.
    """

    def __init__(self, module: str, arguments: dict, *, timeout: float, memory_mib: int, workers: int = 1):
        if not timeout > 0:
            raise ValueError(f"timeout must be positive (seconds), got {timeout!r}.")
        if memory_mib < 1 or workers < 1:
            raise ValueError(f"memory_mib and workers must be at least 1, got {memory_mib!r} and {workers!r}.")
        self._making = (module, arguments, float(timeout), int(memory_mib))
        self._n_workers = workers
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._running: list[_Worker] = []
        self._lock = Lock()
        self._slots: SimpleQueue[_Worker | None] = SimpleQueue()
        for _ in range(self._n_workers):
            self._slots.put(None)
        self._finalizer = weakref.finalize(self, _stop_all, self._running, self._pid)

    def ask(self, requests: Sequence[Any]) -> list[Any]:
        """The reply to each request, in order; None where it failed or exceeded a limit.

        Raises
        ------
        RuntimeError
            If a process can not start.
        """
        if os.getpid() != self._pid:
            self._finalizer.detach()
            self._reset()
        if self._n_workers == 1 or len(requests) < 2:
            return [self._ask(request) for request in requests]
        with ThreadPoolExecutor(self._n_workers) as threads:
            return list(threads.map(self._ask, requests))

    def _ask(self, request: Any) -> Any:
        worker = self._slots.get()
        try:
            if worker is not None and worker.process.poll() is not None:  # ended while idle: not this request's doing
                worker = self._drop(worker)
            if worker is None:
                worker = _Worker(*self._making)
                with self._lock:
                    self._running.append(worker)
            return worker.ask(request, self._making[2]).get("reply")
        except _Died:
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
