"""Which of verl's checkpoints are due, become snapshots, and stay. Knows verl's folders, and not verl."""

import json
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from llm_experiments.policies.model_folder import new_folder
from llm_experiments.training.snapshots import snapshot

LATEST = "latest_checkpointed_iteration.txt"
_NAME = re.compile(r"global_step_([0-9]+)")


@dataclass(frozen=True)
class Kept:
    """What stays of a run's checkpoints.

    checkpoints: verl's folder of them, in the run's.
    steps: Of snapshots.
    save_every: Steps between checkpoints to go on from.
    keep_checkpoints: How many of them stay; None keeps all.
    dtype ({"float32", "bfloat16"}): Of the snapshots.
    """

    checkpoints: Path
    steps: Collection[int]
    save_every: int
    keep_checkpoints: int | None
    dtype: str

    def latest(self) -> int:
        """The step to go on from; 0 without a checkpoint."""
        path = self.checkpoints / LATEST
        return int(path.read_text()) if path.is_file() else 0

    def next_due(self, step: int) -> int:
        """The first step after ``step`` at which to save.

        As verl saves where ``step % save_freq == 0``, this number is the ``save_freq`` to set until then: no step in
        between is a multiple of it.
        """
        regular = (step // self.save_every + 1) * self.save_every
        return min([regular, *(each for each in self.steps if each > step)])

    def keep(self, step: int) -> None:
        """After the checkpoint of ``step`` was written: make its snapshot, if it is one, and remove what may go."""
        if step in self.steps:
            model = self.checkpoints / f"global_step_{step}" / "actor" / "huggingface"
            write_snapshot(model, snapshot(self.checkpoints.parent, step), self.dtype)
        if self.keep_checkpoints is not None:
            # A newer one than the latest was begun by a run that was killed, and is written over.
            old = [each for each in sorted(_steps(self.checkpoints)) if each <= step][: -self.keep_checkpoints]
            for each in old:
                shutil.rmtree(self.checkpoints / f"global_step_{each}")


def _steps(checkpoints: Path) -> list[int]:
    return [int(name[1]) for path in checkpoints.iterdir() if (name := _NAME.fullmatch(path.name))]


def write_snapshot(model: Path, folder: Path, dtype: str) -> None:
    """A model folder as verl writes it, its weights as ``dtype``."""
    with new_folder(folder) as temporary:
        for path in model.iterdir():
            if path.suffix == ".safetensors":
                weights = {name: value.to(getattr(torch, dtype)) for name, value in load_file(path).items()}
                save_file(weights, temporary / path.name, metadata={"format": "pt"})
            else:
                shutil.copy2(path, temporary / path.name)
        config = temporary / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"dtype": dtype}, indent=2))
