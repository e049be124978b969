"""Computing shards: one of them on a worker, and many of them in parallel."""

import json
import shlex
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401  (its thread pool is there from now on, even if a study imports it late)
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from simulations.harness.randomness import Streams
from simulations.harness.store import Shard, Store
from simulations.harness.study import Cell, Samples, Study


class WorkerDied(RuntimeError):
    """A worker was killed from outside, most often for want of memory."""


@dataclass(frozen=True)
class Computation:
    """The part of a run that workers need.

    name: Of the study.
    store: Where the worker stores what it computed.
    """

    name: str
    simulate: Callable[[Cell, Streams], Samples]
    seed: int
    store: Store

    def __call__(self, shard: Shard, key: str) -> tuple[Shard, dict[str, Any] | None]:
        """Compute and store a shard; with it goes the record of its failure, or None.

        The record: ``study, factors, seed, first, last, error, trace``, and the command ``replay`` for the first
        replicate that fails alone too.
        """
        try:
            samples = samples_of(self.simulate, shard.cell, self.seed, key, range(shard.first, shard.last))
        except Exception as error:
            return shard, self._record(shard, key, error)
        self.store.write(shard, samples)
        return shard, None

    def _record(self, shard: Shard, key: str, error: Exception) -> dict[str, Any]:
        trace, replicate = traceback.format_exc(), shard.first
        with suppress(Exception):
            for replicate in range(shard.first, shard.last):
                samples_of(self.simulate, shard.cell, self.seed, key, [replicate])
        factors = dict(shard.cell.factors)
        arguments = f"{self.name} {shlex.quote(json.dumps(factors))} {replicate} --seed {self.seed}"
        return {
            "study": self.name,
            "factors": factors,
            "seed": self.seed,
            "first": shard.first,
            "last": shard.last,
            "error": f"{type(error).__name__}: {error}",
            "trace": trace,
            "replay": f"python -m simulations replay {arguments}",
        }


def samples_of(
    simulate: Callable[[Cell, Streams], Samples], cell: Cell, seed: int, key: str, replicates: Sequence[int]
) -> Samples:
    """Columns of the given replicates, checked.

    Linear algebra runs on one thread: the last bits of a matrix product depend on their number, which differs between
    one worker and many.

    Raises ValueError if a column does not hold one finite number per replicate.
    """
    with threadpool_limits(limits=1):
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


def execute(
    study: Study, shards: Sequence[Shard], store: Store, *, seed: int, jobs: int
) -> Iterator[tuple[Shard, dict[str, Any] | None]]:
    """The shards as they come, in any order, each with the record of its failure; all but these are stored.

    A worker stores its shard itself: a crash loses only the shards being computed.

    Raises OSError if a shard cannot be stored.
    Raises WorkerDied if a worker was killed.
    """
    compute = delayed(Computation(study.name, study.simulate, seed, store))
    calls = [compute(shard, study.seed_key(shard.cell)) for shard in shards]
    try:
        yield from Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(calls)
    except BrokenExecutor as error:
        raise WorkerDied(
            f"a worker of study {study.name!r} was killed, perhaps for want of memory; finished shards are kept. "
            "Run it again to go on, with fewer jobs or a smaller shard."
        ) from error
