"""What a plan takes before it begins: packages, memory, disk."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from llm_experiments.paper.plan import Machinery, is_sharded
from llm_experiments.training.config import RunConfig
from llm_experiments.training.disk import disk_use
from llm_experiments.training.memory import GPU_GIB, device_gib
from llm_experiments.training.shapes import GIB, shape_of


def needs(runs_of: dict[Path, list[RunConfig]], machinery: Machinery) -> list[str]:
    """Lines for the user.

    runs_of: From configurations to their runs; see `llm_experiments.paper.plan.wanted_runs`.
    """
    lines, stays, checkpoints = [""], 0.0, 0.0
    for runs in runs_of.values():
        first, shape = runs[0], shape_of(runs[0].model)
        lines.append(f"{first.name}: {len(runs)} training run{'s' if len(runs) > 1 else ''}")
        if shape is None:
            lines.append("  the size of the model is not known here, so neither are memory and disk.")
            continue
        uses = [disk_use(run, shape, backend=machinery.backend) for run in runs]
        stays += sum(use.snapshots + use.model for use in uses) / GIB
        checkpoints = max(checkpoints, *(use.checkpoints / GIB for use in uses))
        if machinery.gpus:
            sharded, devices = is_sharded(first, machinery), machinery.processes
            held, sampler = device_gib(first, shape, gpus=devices, sharded=sharded)
            lines.append(
                f"  {held:.0f} GiB of each of {devices} GPUs for weights, gradients and the optimizer's moments, "
                f"{sampler:.0f} GiB for vLLM (of a GPU of {GPU_GIB:.0f} GiB), and what a backward pass keeps of a "
                "micro-batch"
            )
    if stays:
        there = next(path for path in (machinery.runs, *machinery.runs.parents) if path.is_dir())
        free = shutil.disk_usage(there).free / GIB
        lines.append(
            f"Disk: {stays + checkpoints:,.0f} GiB at the most; {free:,.0f} GiB are free now. "
            f"{checkpoints:,.0f} of them are checkpoints of the run that trains, "
            "which are removed when it is done (--keep-checkpoints keeps them)."
        )
    if machinery.gpus > 1:
        lines.append(f"Diagnostics and evaluations take one GPU each, {machinery.gpus} side by side.")
    source = f"local files in {machinery.data}" if machinery.data else "the public hub (or local files with --data)"
    lines.append(f"Problems are read from {source}.")
    sampled = {run.sampling.engine for runs in runs_of.values() for run in runs}
    missing = [name for name in (machinery.backend, *({"vllm"} & sampled)) if find_spec(name) is None]
    if missing:
        lines.append(f"Not installed here, and needed to run: {', '.join(missing)}.")
    return lines
