"""What a plan takes before it begins: packages, memory, disk."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

from llm_experiments.paper.plan import ALL, TABLES, Machinery, training_runs
from llm_experiments.training.config import RunConfig
from llm_experiments.training.disk import disk_use
from llm_experiments.training.shapes import GIB, ModelShape, shape_of
from llm_experiments.training.trl.resources import KNOWN_ERROR, estimate


def needs(table: str, machinery: Machinery, config: Path | None = None) -> list[str]:
    """Lines for the user.

    Parameters
    ----------
    table : str
    machinery : Machinery
    config : Path or None
        See `llm_experiments.paper.plan.plan`.
    """
    lines, disk, checkpoints, estimated = [""], 0.0, 0.0, False
    for runs in training_runs(table, config).values():
        first, shape = runs[0], shape_of(runs[0].model)
        lines.append(f"{first.name}: {len(runs)} training run{'s' if len(runs) > 1 else ''}")
        if shape is None:
            lines.append("  the size of the model is not known here, so neither are memory and disk.")
            continue
        uses = [disk_use(run, shape, backend=machinery.backend) for run in runs]
        disk += sum(use.total for use in uses) / GIB
        checkpoints += sum(use.checkpoints for use in uses) / GIB
        if machinery.gpus:
            estimated = True
            lines.append(_estimated(runs, shape, machinery))
    if disk:
        there = next(path for path in (machinery.runs, *machinery.runs.parents) if path.is_dir())
        free = shutil.disk_usage(there).free / GIB
        lines.append(
            f"Disk: {disk:,.0f} GiB at the most for all runs together; {free:,.0f} GiB are free now. "
            f"{checkpoints:,.0f} of them are checkpoints to go on from, which a finished run needs no more: remove its "
            "folder checkpoints."
        )
    if estimated:
        lines.append(KNOWN_ERROR)
        if machinery.backend == "verl":
            lines.append("It is counted for TRL, which pads; verl does not, and should take less.")
    parts = "Diagnostics and evaluations" if TABLES[table][0] == ALL else "Diagnostics"
    if machinery.gpus > 1:
        lines.append(f"{parts} run on one GPU each, one after the other.")
    source = f"local files in {machinery.data}" if machinery.data else "the public hub (or local files with --data)"
    lines.append(f"Problems are read from {source}.")
    missing = [name for name in _packages(machinery, table, config) if find_spec(name) is None]
    if missing:
        lines.append(f"Not installed here, and needed to run: {', '.join(missing)}.")
    return lines


def _estimated(runs: list[RunConfig], shape: ModelShape, machinery: Machinery) -> str:
    devices = machinery.processes
    worst = max(
        (estimate(run, shape, gpus=devices, sharded=devices > 1) for run in runs), key=lambda each: each.total_gib
    )
    return (
        f"  by an estimate {worst.total_gib:.0f} GiB on each of {devices} GPU{'s' if devices > 1 else ''} of 80, "
        f"vLLM's {worst.generation_gib:.0f} included"
    )


def _packages(machinery: Machinery, table: str, config: Path | None) -> list[str]:
    sampled = {run.sampling.engine for runs in training_runs(table, config).values() for run in runs}
    return [machinery.backend, *(["vllm"] if "vllm" in sampled else [])]
