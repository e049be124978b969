"""What a plan takes before it begins: packages, memory, hours, disk."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from llm_experiments.paper.plan import Machinery, is_sharded
from llm_experiments.training.config import RunConfig
from llm_experiments.training.disk import disk_use
from llm_experiments.training.shapes import GIB, ModelShape, shape_of
from llm_experiments.training.trl.resources import KNOWN_ERROR, estimate


def needs(runs_of: dict[Path, list[RunConfig]], machinery: Machinery) -> list[str]:
    """Lines for the user.

    runs_of: From configurations to their runs; see `llm_experiments.paper.plan.wanted_runs`.
    """
    lines, stays, checkpoints, estimated = [""], 0.0, 0.0, False
    for runs in runs_of.values():
        first, shape = runs[0], shape_of(runs[0].model)
        lines.append(f"{first.name}: {len(runs)} training run{'s' if len(runs) > 1 else ''}")
        if shape is None:
            lines.append("  the size of the model is not known here, so neither are memory, time and disk.")
            continue
        uses = [disk_use(run, shape, backend=machinery.backend) for run in runs]
        stays += sum(use.snapshots + use.model for use in uses) / GIB
        checkpoints = max(checkpoints, *(use.checkpoints / GIB for use in uses))
        if machinery.gpus:
            estimated = True
            lines.append(_estimated(runs, shape, machinery))
    if stays:
        there = next(path for path in (machinery.runs, *machinery.runs.parents) if path.is_dir())
        free = shutil.disk_usage(there).free / GIB
        lines.append(
            f"Disk: {stays + checkpoints:,.0f} GiB at the most; {free:,.0f} GiB are free now. "
            f"{checkpoints:,.0f} of them are checkpoints of the run that trains, "
            "which are removed when it is done (--keep-checkpoints keeps them)."
        )
    if estimated:
        lines.append(f"Hours are of training alone, one run after the other. {KNOWN_ERROR}")
        if machinery.backend == "verl":
            lines.append(
                "They are counted for TRL, which pads completions to the longest of a step; verl pads them to the "
                "longest of a micro-batch. No such run has been timed on verl."
            )
    if machinery.gpus > 1:
        lines.append(f"Diagnostics and evaluations take one GPU each, {machinery.gpus} side by side.")
    source = f"local files in {machinery.data}" if machinery.data else "the public hub (or local files with --data)"
    lines.append(f"Problems are read from {source}.")
    missing = [name for name in _packages(machinery, runs_of) if find_spec(name) is None]
    if missing:
        lines.append(f"Not installed here, and needed to run: {', '.join(missing)}.")
    return lines


def _estimated(runs: list[RunConfig], shape: ModelShape, machinery: Machinery) -> str:
    devices = machinery.processes
    whole = machinery.backend == "verl"
    found = [estimate(run, shape, gpus=devices, sharded=is_sharded(run, machinery), whole_logits=whole) for run in runs]
    worst, hours = max(each.total_gib for each in found), [each.hours for each in found]
    freed = ", which verl frees while it trains" if whole else ""
    each = f"{max(hours):.1f} hours each, {sum(hours):,.0f} in all" if len(runs) > 1 else f"{hours[0]:.1f} hours"
    return (
        f"  by an estimate {each} on {devices} GPU{'s' if devices > 1 else ''} of the H100's kind, "
        f"and {worst:.0f} GiB of each one's memory, vLLM's {found[0].generation_gib:.0f} included{freed}"
    )


def _packages(machinery: Machinery, runs_of: dict[Path, list[RunConfig]]) -> list[str]:
    sampled = {run.sampling.engine for runs in runs_of.values() for run in runs}
    return [machinery.backend, *(["vllm"] if "vllm" in sampled else [])]
