"""Run a study: the missing shards in parallel, then the summaries."""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from kaestat.storage import write_atomically
from simulations.harness.provenance import provenance
from simulations.harness.randomness import Streams
from simulations.harness.store import Store
from simulations.harness.study import Cell, Samples, Study, content_hash

Task = tuple[Cell, int, int]


@dataclass(frozen=True)
class RunSettings:
    """How to run a study; none of it changes a result but ``seed`` and ``scale``.

    Attributes
    ----------
    out : path
        Folder of all runs; a run lies in ``out/STUDY/RUN_ID``.
    seed : int
        Seed of all random numbers.
    scale : float
        Factor on the study's number of replicates.
    jobs : int
        Workers.
    backend : {"loky", "ray", "sequential"}
        joblib's processes, a Ray cluster through joblib, or this process.
    """

    out: Path
    seed: int = 0
    scale: float = 1.0
    jobs: int = 2
    backend: Literal["loky", "ray", "sequential"] = "loky"

    def __post_init__(self):
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale must be positive, got {self.scale!r}.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed must be a whole number from 0 on, got {self.seed!r}.")
        if isinstance(self.jobs, bool) or not isinstance(self.jobs, int) or self.jobs < 1:
            raise ValueError(f"jobs must be a positive whole number, got {self.jobs!r}.")
        if self.backend not in ("loky", "ray", "sequential"):
            raise ValueError(f"backend must be loky, ray or sequential, got {self.backend!r}.")

    def replicates(self, study: Study) -> int:
        """Replicates of each cell at this scale, at least 2 so that every number has an error."""
        return max(2, round(study.replicates * self.scale))


@dataclass(frozen=True, eq=False)
class StudyResult:
    """What a run found.

    Attributes
    ----------
    study : Study
    summary : DataFrame
        One row per cell, method and measure: factors, ``method, measure, estimate, mcse, n``.
    conclusion : DataFrame or None
        Across cells, from `Study.conclude`.
    failures : list of dict
        Shards that failed, with seeds and traces; their cells are missing from ``summary``.
    folder : Path
    computed : int
        Shards computed by this call (the others were there).
    """

    study: Study
    summary: pd.DataFrame
    conclusion: pd.DataFrame | None
    failures: list[dict]
    folder: Path
    computed: int


def run(study: Study, settings: RunSettings, *, progress: Callable[[int, int], None] | None = None) -> StudyResult:
    """Compute what is missing and summarise everything; interrupted runs go on where they stopped.

    Parameters
    ----------
    study : Study
    settings : RunSettings
    progress : callable, optional
        ``progress(done, total)`` after every shard.

    Raises
    ------
    OSError
        If results cannot be written; before any work starts.
    """
    folder = Path(settings.out) / study.name / study.run_id(settings.seed)
    store = Store(folder)
    target = {cell.key: settings.replicates(study) for cell in study.cells}
    computed, open_cells = 0, list(study.cells)
    while open_cells:
        tasks = [task for cell in open_cells for task in _missing(study, cell, target[cell.key], store)]
        computed += _execute(study, tasks, settings, folder, progress)
        failed = {content_hash(failure["factors"]) for failure in store.failures()}
        open_cells = [] if study.precision is None else _imprecise(study, store, target, failed)
    failures = store.failures()
    failed = {content_hash(failure["factors"]) for failure in failures}
    summary = summarise(study, store, target, skip=failed)
    conclusion = study.conclude(summary) if study.conclude is not None and not failed else None
    _write_outputs(study, settings, folder, summary, conclusion)
    return StudyResult(study, summary, conclusion, failures, folder, computed)


def replay(study: Study, cell: Cell, replicate: int, seed: int) -> Samples:
    """Compute one replicate again, alone: the same numbers as in any run with that seed."""
    if replicate < 0:
        raise ValueError(f"replicate must be 0 or more, got {replicate}.")
    return study.simulate(cell, Streams(seed, study.seed_key(cell), [replicate]))


def summarise(study: Study, store: Store, target: dict[str, int], skip: Iterable[str] = ()) -> pd.DataFrame:
    """Summaries of all cells from their shards."""
    rows = []
    for cell in study.cells:
        if cell.key in skip:
            continue
        samples = store.read(cell, target[cell.key], study.shard)
        rows += [dict(cell.factors) | asdict(estimate) for estimate in study.summarise(cell, samples)]
    factors = list(dict.fromkeys(name for cell in study.cells for name in cell.factors))
    return pd.DataFrame(rows, columns=[*factors, "method", "measure", "estimate", "mcse", "n"])


def _missing(study: Study, cell: Cell, replicates: int, store: Store) -> list[Task]:
    edges = [*range(0, replicates, study.shard), replicates]
    return [(cell, first, last) for first, last in pairwise(edges) if not store.has(cell, first, last)]


def _execute(
    study: Study, tasks: list[Task], settings: RunSettings, folder: Path, progress: Callable[[int, int], None] | None
) -> int:
    from joblib import Parallel, delayed, parallel_config

    if not tasks:
        return 0
    if settings.backend == "ray":
        _start_ray(settings.jobs)
    calls = (delayed(_compute)(study, *task, settings.seed, folder) for task in tasks)
    with parallel_config(backend=settings.backend, n_jobs=1 if settings.backend == "sequential" else settings.jobs):
        # Ray's joblib backend does not return results one by one.
        parallel = Parallel(return_as="list" if settings.backend == "ray" else "generator_unordered")
        for done, _ in enumerate(parallel(calls), start=1):
            if progress is not None:
                progress(done, len(tasks))
    return len(tasks)


def _compute(study: Study, cell: Cell, first: int, last: int, seed: int, folder: Path) -> None:
    """One shard; a failure is recorded, so that the others go on."""
    store = Store(folder)
    started = time.perf_counter()
    try:
        samples = study.simulate(cell, Streams(seed, study.seed_key(cell), range(first, last)))
        store.write(cell, first, last, samples)
        store.clear_failure(cell, first, last)
    except Exception as error:
        store.write_failure(
            cell,
            first,
            last,
            {
                "study": study.name,
                "seed": seed,
                "error": f"{type(error).__name__}: {error}",
                "trace": traceback.format_exc(),
                "seconds": round(time.perf_counter() - started, 3),
            },
        )


def _imprecise(study: Study, store: Store, target: dict[str, int], failed: set[str]) -> list[Cell]:
    """Cells whose errors are too large still; their target is raised by half."""
    limit = study.max_replicates or 4 * max(target.values())
    wanting = []
    for cell in study.cells:
        if cell.key in failed or target[cell.key] >= limit:
            continue
        estimates = study.summarise(cell, store.read(cell, target[cell.key], study.shard))
        ratios = [e.mcse / abs(e.estimate) for e in estimates if e.estimate != 0 and math.isfinite(e.mcse)]
        if ratios and max(ratios) > study.precision:
            # Whole shards, so that what is there is used again.
            whole = math.ceil(1.5 * target[cell.key] / study.shard) * study.shard
            target[cell.key] = min(whole, max(limit // study.shard, 1) * study.shard)
            wanting.append(cell)
    return wanting


def _start_ray(jobs: int) -> None:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise ImportError("backend ray needs Ray: pip install 'ray[default]'.") from error
    if not ray.is_initialized():
        ray.init(address=os.environ.get("RAY_ADDRESS"), num_cpus=None if "RAY_ADDRESS" in os.environ else jobs)
    register_ray()


def _write_outputs(
    study: Study, settings: RunSettings, folder: Path, summary: pd.DataFrame, conclusion: pd.DataFrame | None
) -> None:
    import json

    write_atomically(folder / "summary.csv", summary.to_csv(index=False))
    if conclusion is not None:
        write_atomically(folder / "conclusion.csv", conclusion.to_csv(index=False))
    record = provenance(seed=settings.seed) | {"study": study.declaration(), "scale": settings.scale}
    write_atomically(folder / "provenance.json", json.dumps(record, indent=1, default=_plain))


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)
