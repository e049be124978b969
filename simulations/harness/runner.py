"""Run a study: the missing shards in parallel, then the summaries."""

import json
import math
import os
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from kaestat.core.checks import check_whole
from simulations.harness.execution import BACKENDS, check_packages, execute, samples_of
from simulations.harness.performance import Estimate
from simulations.harness.provenance import provenance
from simulations.harness.store import Store
from simulations.harness.study import Cell, Samples, Study

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class RunSettings:
    """How to run a study; none of it changes a result but ``seed`` and ``scale``.

    out: Folder of all runs; a run lies in ``out/STUDY/RUN_ID``.
    seed: Seed of all random numbers.
    scale: Factor on the study's number of replicates.
    jobs: Workers.
    backend ({"loky", "sequential"}): joblib's processes, or this process.
    Raises ValueError if a setting is out of range.
    """

    out: str | os.PathLike
    seed: int = 0
    scale: float = 1.0
    jobs: int = 2
    backend: Literal["loky", "sequential"] = "loky"

    def __post_init__(self):
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale must be positive, got {self.scale!r}.")
        object.__setattr__(self, "seed", check_whole("seed", self.seed, least=0))
        object.__setattr__(self, "jobs", check_whole("jobs", self.jobs))
        if self.backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {self.backend!r}.")

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
    failures: What failed, with seeds and traces (`Outcome.failure`); these cells are missing from ``summary``.
    computed: Shards computed by this call (the others were there).
    damaged: Shard files that were torn or altered; they were set aside and computed again.
    """

    study: Study
    summary: pd.DataFrame
    conclusion: pd.DataFrame | None
    failures: list[dict[str, Any]]
    folder: Path
    computed: int
    damaged: list[Path]


def run(study: Study, settings: RunSettings, *, progress: Progress | None = None) -> StudyResult:
    """Compute what is missing and summarise everything; interrupted runs go on where they stopped.

    What failed before is tried again. Several runs may share a folder: at worst they compute the same shards.

    progress: ``progress(done, total)`` in replicates of all cells: once before work starts, and after every shard.
    Raises ImportError if a package that workers need is missing; before any work starts.
    Raises OSError if results cannot be written, asked before any work starts; or if the disk fills up on the way.
    Raises WorkerDied if a worker was killed from outside.
    """
    store = Store(settings.folder(study))
    store.check_writable()
    check_packages()
    return _Run(study, settings, store, progress or (lambda done, total: None)).finish()


def replay(study: Study, cell: Cell, replicate: int, seed: int) -> Samples:
    """Compute one replicate again, alone: the same numbers as in any run with that seed.

    Raises ValueError if there is no such replicate.
    """
    if replicate < 0:
        raise ValueError(f"replicate must be 0 or more, got {replicate}.")
    return samples_of(study.simulate, cell, seed, study.seed_key(cell), [replicate])


class _Run:
    """One call of `run`, and what failed on the way."""

    def __init__(self, study: Study, settings: RunSettings, store: Store, progress: Progress):
        self.study, self.settings, self.store, self.progress = study, settings, store, progress
        self.replicates = settings.replicates(study)
        self.estimates: dict[str, list[Estimate]] = {}
        self.failures: list[dict[str, Any]] = []
        self.failed: set[str] = set()
        self.computed = 0

    def finish(self) -> StudyResult:
        self._compute()
        for cell in self.study.cells:
            if cell.key not in self.failed:
                self._summarise(cell)
        summary = self._summary()
        conclude = self.study.conclude
        conclusion = self._attempt(lambda: conclude(summary), {}) if conclude and not self.failures else None
        self._write(summary, conclusion)
        return StudyResult(
            self.study, summary, conclusion, self.failures, self.store.folder, self.computed, self.store.damaged
        )

    def _compute(self) -> None:
        settings, cells = self.settings, self.study.cells
        shards = [piece for cell in cells for piece in self.store.missing(cell, self.replicates, self.study.shard)]
        total = self.replicates * len(cells)
        done = total - sum(len(shard) for shard in shards)
        self.progress(done, total)
        outcomes = execute(
            self.study, shards, self.store, seed=settings.seed, jobs=settings.jobs, backend=settings.backend
        )
        for outcome in outcomes if shards else ():
            if outcome.failure is None:
                self.store.remember(outcome.shard, outcome.samples)
                self.store.clear_failure(outcome.shard)
            else:
                self.store.write_failure(outcome.shard, outcome.failure)
                self.failures.append(outcome.failure)
                self.failed.add(outcome.shard.cell.key)
            self.computed += 1
            done += len(outcome.shard)
            self.progress(done, total)

    def _summarise(self, cell: Cell) -> None:
        estimates = self._attempt(
            lambda: list(self.study.summarise(cell, self.store.read(cell, self.replicates, self.study.shard))),
            dict(cell.factors),
        )
        if estimates is None:
            self.failed.add(cell.key)
        else:
            self.estimates[cell.key] = estimates

    def _summary(self) -> pd.DataFrame:
        study = self.study
        rows = [
            dict(cell.factors) | asdict(estimate)
            for cell in study.cells
            if cell.key not in self.failed
            for estimate in self.estimates[cell.key]
        ]
        factors = list(dict.fromkeys(name for cell in study.cells for name in cell.factors))
        return pd.DataFrame(rows, columns=[*factors, "method", "measure", "estimate", "mcse", "n"])

    def _attempt(self, summary: Callable[[], Any], factors: dict[str, Any]) -> Any:
        """What the study's own function makes of the samples, or None and a record of its failure: the rest is safe."""
        try:
            return summary()
        except Exception as error:
            record = {"study": self.study.name, "factors": factors, "seed": self.settings.seed}
            trace = traceback.format_exc()
            self.failures.append(record | {"error": f"{type(error).__name__}: {error}", "trace": trace})
            return None

    def _write(self, summary: pd.DataFrame, conclusion: pd.DataFrame | None) -> None:
        self.store.write_text("summary.csv", summary.to_csv(index=False))
        if conclusion is not None:
            self.store.write_text("conclusion.csv", conclusion.to_csv(index=False))
        record = provenance(seed=self.settings.seed) | {
            "study": self.study.declaration() | {"replicates": self.study.replicates},
            "scale": self.settings.scale,
            "cells": [dict(cell.factors) | {"n": self.replicates} for cell in self.study.cells],
            "failures": self.failures,
        }
        self.store.write_text("provenance.json", json.dumps(record, indent=1))
