"""Computing shards: one of them on a worker, and many of them in parallel."""

import ctypes
import json
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from simulations.harness.randomness import Streams
from simulations.harness.store import Shard, Store
from simulations.harness.study import Cell, Samples, Study

BACKENDS = ("loky", "sequential")


class WorkerDied(RuntimeError):
    """A worker was killed from outside, most often for want of memory."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of a shard: samples, or the record of a failure.

    failure: ``study, factors, seed, first, last, error, trace, replicates`` (those that fail alone too), ``replay``
        (the command for the first of them) and ``seconds``.
    """

    shard: Shard
    samples: Samples | None
    failure: dict[str, Any] | None = None


@dataclass(frozen=True)
class Computation:
    """The part of a run that workers need; called with a shard it gives its `Outcome`.

    name: Of the study.
    store: Where the worker stores what it computed.
    """

    name: str
    simulate: Callable[[Cell, Streams], Samples]
    seed: int
    store: Store

    def __call__(self, shard: Shard, key: str) -> Outcome:
        started = time.perf_counter()
        _keep_freed_memory()
        try:
            samples = samples_of(self.simulate, shard.cell, self.seed, key, range(shard.first, shard.last))
        except Exception as error:
            record = self._record(shard, key, error)
            return Outcome(shard, None, record | {"seconds": round(time.perf_counter() - started, 3)})
        self.store.write(shard, samples)
        return Outcome(shard, samples)

    def _record(self, shard: Shard, key: str, error: Exception) -> dict[str, Any]:
        trace = traceback.format_exc()
        alone = self._failing_alone(shard, key)
        factors = shlex.quote(json.dumps(dict(shard.cell.factors)))
        replay = f"replay {self.name} {factors} {min(alone, default=shard.first)} --seed {self.seed}"
        return {
            "study": self.name,
            "factors": dict(shard.cell.factors),
            "seed": self.seed,
            "first": shard.first,
            "last": shard.last,
            "error": f"{type(error).__name__}: {error}",
            "trace": trace,
            "replicates": alone,
            "replay": f"python -m simulations {replay}",
        }

    def _failing_alone(self, shard: Shard, key: str) -> list[int]:
        failing = []
        for replicate in range(shard.first, shard.last):
            try:
                samples_of(self.simulate, shard.cell, self.seed, key, [replicate])
            except Exception:
                failing.append(replicate)
        return failing


def samples_of(
    simulate: Callable[[Cell, Streams], Samples], cell: Cell, seed: int, key: str, replicates: Sequence[int]
) -> Samples:
    """Columns of the given replicates, checked.

    Linear algebra runs on one thread: the last bits of a matrix product depend on their number, which differs between
    one worker and many.

    Raises ValueError if a column does not hold one finite number per replicate.
    """
    with _thread_pools(len(sys.modules)).limit(limits=1):
        samples = simulate(cell, Streams(seed, key, replicates))
    if not samples:
        raise ValueError("simulate returned no columns.")
    samples = {name: np.asarray(column, dtype=float) for name, column in samples.items()}
    for name, column in samples.items():
        if np.shape(column) != (len(replicates),):
            raise ValueError(f"column {name!r} has shape {np.shape(column)}, expected ({len(replicates)},).")
        finite = np.isfinite(column)
        if not finite.all():
            raise ValueError(f"column {name!r} is not finite in replicate {replicates[int(np.argmin(finite))]}.")
    return samples


@lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> Any:
    """The thread pools of the loaded libraries; to find them takes long, so anew only after further imports."""
    import scipy.linalg  # noqa: F401  (its pool is there from now on, even if a study imports it late)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@cache
def _keep_freed_memory() -> None:
    """Tell the allocator to keep up to 512 MiB of freed memory; where it is not glibc's, do nothing.

    By default it hands the arrays of every shard back to the system, and getting them again page by page takes longer
    than the arithmetic in them.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3  # malloc.h
        mallopt(trim_threshold, 512 << 20)
        mallopt(mmap_threshold, 32 << 20)


def execute(
    study: Study, shards: Sequence[Shard], store: Store, *, seed: int, jobs: int, backend: str
) -> Iterator[Outcome]:
    """Outcomes of the shards as they come, in any order; all but the failed ones are stored.

    A worker stores its shard itself: a crash loses only the shards being computed.

    Raises OSError if a shard cannot be stored.
    Raises WorkerDied if a worker was killed.
    """
    from joblib import Parallel, delayed, parallel_config

    compute = delayed(Computation(study.name, study.simulate, seed, Store(store.folder)))
    calls = [compute(shard, study.seed_key(shard.cell)) for shard in shards]
    try:
        n_jobs = 1 if backend == "sequential" else jobs
        with parallel_config(backend=backend, n_jobs=n_jobs):
            yield from Parallel(return_as="generator_unordered", batch_size=1)(calls)
    except BrokenExecutor as error:
        raise WorkerDied(
            f"a worker of study {study.name!r} was killed, perhaps for want of memory; finished shards are kept. "
            "Run it again to go on, with fewer jobs or a smaller shard."
        ) from error


def check_packages() -> None:
    """Import what workers need.

    Raises ImportError if a package is missing.
    """
    try:
        import joblib  # noqa: F401
        import threadpoolctl  # noqa: F401
    except ImportError as error:
        raise ImportError(f"simulations need {error.name}: pip install -e '.[simulations]'.") from error
