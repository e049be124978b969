"""Worker processes that answer requests within limits of time and memory, and are replaced when they exceed them."""

import json
import os
import select
import signal
import subprocess
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum
from pathlib import Path
from queue import LifoQueue
from threading import Lock
from typing import Any

from .patience import Patience

BUDGET = 50.0
"""Seconds that slow requests may keep a pool waiting."""

_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 120.0
_KEPT = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "VIRTUAL_ENV"),
)
"""Environment variables that workers are given."""


def default_workers() -> int:
    """Processes that suit this machine: its cores, shared with the other ranks of a distributed run on it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


class PassedOver(Enum):
    """The reply to a request that did not have all of its time: nothing is known of it."""

    PASSED_OVER = "skipped"


PASSED_OVER = PassedOver.PASSED_OVER


class _Died(Exception):
    """The child that answers ended."""


class _TimedOut(Exception):
    """No reply came in time."""


class _Worker:
    """One process; started afresh (not forked), so that it is light and inherits no lock or device of its parent."""

    def __init__(self, module: str, arguments: dict, seconds: float, memory_mib: int):
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_ROOT,
            env=_environment(),
            start_new_session=True,  # with a process group of its own, to be ended with its child
        )
        self._buffer, self._child, self._number = b"", 0, 0
        # The alarm inside the worker comes second: the process that asks ends it first, unless it is gone itself.
        settings = {"memory_bytes": memory_mib << 20, "seconds": seconds + 1.0, "arguments": arguments}
        try:
            self._send(settings)
            reply = self._line(time.monotonic() + _START_SECONDS)
        except (_Died, _TimedOut):
            self.stop()
            raise RuntimeError(
                f"{module} did not start in {_START_SECONDS:.0f} s with memory_mib = {memory_mib}; give it more memory."
            ) from None
        if "error" in reply:
            self.stop()
            raise RuntimeError(f"{module} could not start with memory_mib = {memory_mib}: {reply['error']}")
        self._child = reply["child"]

    def ask(self, request: Any, seconds: float) -> dict:
        """The reply to one request.

        Raises _TimedOut if none comes in time. The child has been ended, and another one takes its place.
        Raises _Died if the child ended.
        """
        self._replaced_while_idle()
        deadline = time.monotonic() + seconds
        self._number += 1
        try:
            self._send([self._number, request])
            # A child that took another's place may first answer a request that was already given up.
            while "child" not in (reply := self._line(deadline)) and reply["number"] != self._number:
                pass
        except _TimedOut:
            with suppress(ProcessLookupError):  # it may have ended meanwhile
                os.kill(self._child, signal.SIGKILL)
            self._await_child()
            raise
        if "child" in reply:
            self._child = reply["child"]
            raise _Died
        return reply

    def _replaced_while_idle(self) -> None:
        while self._poll(0):
            self._child = self._line(time.monotonic() + _START_SECONDS).get("child", self._child)

    def _await_child(self) -> None:
        """Until another child has taken the place of the one that was ended."""
        try:
            while "child" not in (reply := self._line(time.monotonic() + _START_SECONDS)):
                pass  # a reply that came too late
        except _TimedOut:
            self.stop()
            raise _Died from None
        self._child = reply["child"]

    def _send(self, request: Any) -> None:
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise _Died from None

    def _line(self, deadline: float) -> dict:
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not self._poll(left):
                raise _TimedOut
            received = os.read(self.process.stdout.fileno(), 65536)
            if not received:
                raise _Died
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def _poll(self, seconds: float) -> bool:
        poll = select.poll()  # unlike select(), fit for descriptors above 1024
        poll.register(self.process.stdout.fileno(), select.POLLIN)
        return b"\n" in self._buffer or bool(poll.poll(seconds * 1000))

    def processes(self) -> list[int]:
        return [self.process.pid, self._child]

    def stop(self) -> None:
        if self.process.stdout.closed:
            return  # its id may be another's by now
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass  # what was left unwritten is of no use to a dead process


class WorkerPool:
    """Processes that answer requests, each within limits of time and memory.

    All requests first have a tenth of the limit of time, so that no slow one takes another's turn. Then the unanswered
    ones have all of it. A request that exceeds it, or that ends its process in any other way, is answered None; the
    process is replaced and the other requests go on. Where many are slow, the limit gets shorter, and requests that
    need more are `PASSED_OVER`: `Patience` bounds the time of all together. Processes start when first needed and end
    with `close`, with the pool, or with the interpreter. Safe to use from several threads; after a fork, the child
    starts processes of its own.

    module: Run by ``python -m``; calls `llm_experiments.verifiers.worker_loop.serve`.
    arguments: Of the module's ``prepare``; as JSON.
    timeout: Seconds for each request.
    memory_mib: Address space of each process. Not enforced on macOS.
    workers: Processes, at most; None takes `default_workers`.
    budget: Seconds that slow requests may keep the pool waiting; a tenth of the time that passes is added again.
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
        # The last one back is the first one out: a process is started only where all that run are at work.
        self._slots: LifoQueue[_Worker | None] = LifoQueue()
        for _ in range(self._n_workers):
            self._slots.put(None)
        self._finalizer = weakref.finalize(self, _stop_all, self._running, self._pid)

    def ask(self, requests: Sequence[Any], *, patient: bool = False) -> list[Any]:
        """The reply to each request, in order; None where it failed or exceeded a limit, or `PASSED_OVER`.

        patient: Whether each has all of its time, however long that takes together; none is skipped.
        Raises RuntimeError if a process can not start.
        """
        if os.getpid() != self._pid:
            self._finalizer.detach()
            self._reset()
        replies = self._each(requests, self._quickly)
        slow = [place for place, reply in enumerate(replies) if reply is PASSED_OVER]
        found = self._each([requests[place] for place in slow], self._with_all_time if patient else self._patiently)
        for place, reply in zip(slow, found, strict=True):
            replies[place] = reply
        if passed_over := found.count(PASSED_OVER):
            warnings.warn(
                f"{passed_over} of {len(requests)} requests were skipped, as slow ones had used up the "
                f"{self._budget:g} s that they may take together; {replies.count(None)} exceeded a limit or failed. "
                "Raise budget or workers if these are no hostile texts.",
                RuntimeWarning,
                stacklevel=2,
            )
        return replies

    def _each(self, requests: Sequence[Any], ask: Callable[[Any], Any]) -> list[Any]:
        if self._n_workers == 1 or len(requests) < 2:
            return [ask(request) for request in requests]
        with ThreadPoolExecutor(min(self._n_workers, len(requests))) as threads:
            return list(threads.map(ask, requests))

    def _quickly(self, request: Any) -> Any:
        # What ends its process is asked again: the system may have ended it for another process's sake.
        return self._ask(request, self._patience.quick, late=PASSED_OVER, died=PASSED_OVER)

    def _patiently(self, request: Any) -> Any:
        limit, full = self._patience.limit(), self._making[2]
        if limit <= self._patience.quick:
            return PASSED_OVER
        begin = time.monotonic()
        reply = self._ask(request, limit, late=None if limit == full else PASSED_OVER)
        self._patience.spend(time.monotonic() - begin)
        return reply

    def _with_all_time(self, request: Any) -> Any:
        return self._ask(request, self._making[2])

    def _ask(self, request: Any, seconds: float, *, late: Any = None, died: Any = None) -> Any:
        """The reply; None for an error, and ``late`` or ``died`` where there is none."""
        worker = self._slots.get()
        try:
            if worker is not None and worker.process.poll() is not None:  # closed, or killed while it was idle
                worker = self._drop(worker)
            if worker is None:
                worker = _Worker(*self._making)
                with self._lock:
                    self._running.append(worker)
            return worker.ask(request, seconds).get("reply")
        except (_TimedOut, _Died) as error:
            if worker.process.poll() is not None:
                worker = self._drop(worker)
            return late if isinstance(error, _TimedOut) else died
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
        """Process ids of the workers that run now, and of their children, which answer."""
        with self._lock:
            return [pid for worker in self._running for pid in worker.processes()]

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
