"""What a plan takes before it begins: packages, memory, hours, disk."""

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
            lines.append("  the size of the model is not known here, so neither are memory, time and disk.")
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
        lines.append(f"Hours are of training alone, one run after the other. {KNOWN_ERROR}")
        if machinery.backend == "verl":
            lines.append("They are counted for TRL, which pads; verl does not, and should take less.")
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
    found = [estimate(run, shape, gpus=devices, sharded=devices > 1) for run in runs]
    worst, hours = max(each.total_gib for each in found), [each.hours for each in found]
    each = f"{max(hours):.1f} hours each, {sum(hours):,.0f} in all" if len(runs) > 1 else f"{hours[0]:.1f} hours"
    return (
        f"  by an estimate {each} on {devices} GPU{'s' if devices > 1 else ''} of the H100's kind, "
        f"and {worst:.0f} GiB of each one's memory, vLLM's {found[0].generation_gib:.0f} included"
    )


def _packages(machinery: Machinery, table: str, config: Path | None) -> list[str]:
    sampled = {run.sampling.engine for runs in training_runs(table, config).values() for run in runs}
    return [machinery.backend, *(["vllm"] if "vllm" in sampled else [])]
