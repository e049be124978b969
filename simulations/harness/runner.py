"""Run a study: the missing shards in parallel, then the summaries."""

import json
import math
import os
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from kaestat.core.checks import check_whole
from simulations.harness.execution import execute, samples_of
from simulations.harness.provenance import provenance
from simulations.harness.store import Store
from simulations.harness.study import Cell, Samples, Study

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class RunSettings:
    """How to run a study; none of it changes a result but ``seed`` and ``scale``.

    out: Folder of all runs; a run lies in ``out/STUDY/RUN_ID``.
    seed: Seed of all random numbers.
    scale: Factor on the study's number of replicates.
    jobs: Worker processes; 1 is this process.
    Raises ValueError if a setting is out of range.
    """

    out: str | os.PathLike
    seed: int = 0
    scale: float = 1.0
    jobs: int = 2

    def __post_init__(self):
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale must be positive, got {self.scale!r}.")
        object.__setattr__(self, "seed", check_whole("seed", self.seed, least=0))
        object.__setattr__(self, "jobs", check_whole("jobs", self.jobs))

    def replicates(self, study: Study) -> int:
        """Replicates of each cell at this scale, at least 2 so that every number has an error."""
        return max(2, round(study.replicates * self.scale))

    def folder(self, study: Study) -> Path:
        """Where this run lies."""
        return Path(self.out) / study.name / study.run_id(self.seed)


@dataclass(frozen=True, eq=False)
class StudyResult:
    """What a run found.

    summary: One row per cell, method and measure: factors, ``method, measure, estimate, mcse, n``.
    conclusion: Across cells, from `Study.conclude`; None if a cell failed.
    failures: What failed, with seeds and traces; these cells are missing from ``summary``.
    computed: Shards computed by this call (the others were there).
    """

    study: Study
    summary: pd.DataFrame
    conclusion: pd.DataFrame | None
    failures: list[dict[str, Any]]
    folder: Path
    computed: int


def run(study: Study, settings: RunSettings, *, progress: Progress = lambda done, total: None) -> StudyResult:
    """Compute what is missing and summarise everything; interrupted runs go on where they stopped.

    What failed before is tried again. Several runs may share a folder: at worst they compute the same shards.

    progress: ``progress(done, total)`` in replicates of all cells: once before work starts, and after every shard.
    Raises OSError if results cannot be written, asked before any work starts; or if the disk fills up on the way.
    Raises WorkerDied if a worker was killed from outside.
    """
    store, replicates = Store(settings.folder(study)), settings.replicates(study)
    store.check_writable()
    shards = [shard for cell in study.cells for shard in store.missing(cell, replicates, study.shard)]
    total = replicates * len(study.cells)
    done = total - sum(map(len, shards))
    failures: list[dict[str, Any]] = []
    failed: set[str] = set()
    progress(done, total)
    for shard, failure in execute(study, shards, store, seed=settings.seed, jobs=settings.jobs) if shards else ():
        if failure is not None:
            failures.append(failure)
            failed.add(shard.cell.key)
        done += len(shard)
        progress(done, total)

    def attempt(make: Callable[[], Any], factors: dict[str, Any]) -> Any:
        """What the study's own function makes of the samples, or None and a record of its failure: the rest is safe."""
        try:
            return make()
        except Exception as error:
            record = {"study": study.name, "factors": factors, "seed": settings.seed}
            trace = traceback.format_exc()
            failures.append(record | {"error": f"{type(error).__name__}: {error}", "trace": trace})
            return None

    rows = []
    for cell in study.cells:
        if cell.key not in failed:
            factors = dict(cell.factors)
            estimates = attempt(
                lambda c=cell: list(study.summarise(c, store.read(c, replicates, study.shard))), factors
            )
            rows += [factors | asdict(estimate) for estimate in estimates or ()]
    names = dict.fromkeys(name for cell in study.cells for name in cell.factors)
    summary = pd.DataFrame(rows, columns=[*names, "method", "measure", "estimate", "mcse", "n"])
    conclude = study.conclude
    conclusion = attempt(lambda: conclude(summary), {}) if conclude and not failures else None

    store.write_file("summary.csv", summary.to_csv(index=False))
    if conclusion is not None:
        store.write_file("conclusion.csv", conclusion.to_csv(index=False))
    record = provenance(seed=settings.seed) | {
        "study": study.declaration() | {"replicates": study.replicates},
        "scale": settings.scale,
        "cells": [dict(cell.factors) | {"n": replicates} for cell in study.cells],
        "failures": failures,
    }
    store.write_file("provenance.json", json.dumps(record, indent=1))
    return StudyResult(study, summary, conclusion, failures, store.folder, len(shards))


def replay(study: Study, cell: Cell, replicate: int, seed: int) -> Samples:
    """Compute one replicate again, alone: the same numbers as in any run with that seed."""
    return samples_of(study.simulate, cell, seed, study.seed_key(cell), [replicate])
