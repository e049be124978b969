"""What a run takes of the disk, before it begins: counted from its weights, which is nearly all there is."""

import shutil
from pathlib import Path
from typing import Literal, NamedTuple

from llm_experiments.training.config import RunConfig
from llm_experiments.training.shapes import BYTES, GIB, ModelShape

FULL = 4 + 8  # bytes of a trained weight in a checkpoint: itself and AdamW's two moments, in float32


class DiskUse(NamedTuple):
    """Bytes of a run at the worst moment.

    checkpoints: Those to go on from; one more than stay, since the oldest goes only when the newest is written.
    snapshots: Weights that stay.
    model: The trained model.
    """

    checkpoints: float
    snapshots: float
    model: float


def disk_use(config: RunConfig, shape: ModelShape, *, backend: Literal["trl", "verl"]) -> DiskUse:
    """What a run takes of the disk.

    backend ({"trl", "verl"}): verl's checkpoints of runs with snapshots hold the weights a second time, as a model
        folder.
    """
    sizes, weights = config.updates, shape.parameters
    one_snapshot = BYTES[config.model.dtype]
    full = FULL * weights
    if backend == "verl" and config.snapshot_steps:
        full += 4 * weights
    written = -(-sizes.steps // sizes.save_every)
    kept = written if sizes.keep_checkpoints is None else min(sizes.keep_checkpoints + 1, written)
    model = (4 if backend == "trl" else one_snapshot) * weights
    return DiskUse(kept * full, len(config.snapshot_steps) * one_snapshot * weights, model)


def check_disk(use: DiskUse, folder: Path) -> str:
    """Compare with what is free where a run's folder is, or will be.

    Returns: A line that says so.
    Raises ValueError if the run does not fit.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free = shutil.disk_usage(there).free + written
    said = (
        f"{sum(use) / GIB:,.1f} GiB of disk at the most (checkpoints to go on from {use.checkpoints / GIB:,.1f}, "
        f"snapshots {use.snapshots / GIB:,.1f}, model {use.model / GIB:,.1f}), {free / GIB:,.1f} GiB are free"
    )
    if sum(use) > free:
        raise ValueError(
            f"{folder}: the run takes {said}. Make room, name another folder, raise updates.save_every or "
            "updates.snapshot_every, or lower updates.keep_checkpoints."
        )
    return f"Takes {said}."
