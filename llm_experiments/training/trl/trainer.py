"""TRL's trainer with our baselines, keeping a record of every step: rewards, lengths, weights, errors."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kaestat.core.storage import write_atomically
from kaestat.integrations.trl import BaselineGRPOTrainer


class RecordingTrainer(BaselineGRPOTrainer):
    """A `BaselineGRPOTrainer` that writes one small file for each training step.

    *args, **kwargs: Those of `BaselineGRPOTrainer`.
    records: Folder of the files, ``000000.json`` for step 0; a resumed run writes them over, with the same content.
    """

    def __init__(self, *args: Any, records: Path, **kwargs: Any):
        self._records, self._begin = records, time.perf_counter()
        super().__init__(*args, **kwargs)

    def _advantages(self, scored: Any, weights: torch.Tensor | None) -> torch.Tensor:
        step = self.generation
        advantages = super()._advantages(scored, weights)
        if self.accelerator.is_main_process:
            self._write(step, scored, advantages)
        return advantages

    def _write(self, step: int, scored: Any, advantages: torch.Tensor) -> None:
        graded = ~scored.rewards.isnan().all(dim=1)
        rewards = scored.rewards.nansum(dim=1).cpu().double()
        now = time.perf_counter()
        metrics = {name: values[-1] for name, values in self._metrics["train"].items() if values}
        record = {
            "step": step,
            "ids": [str(key) for key in scored.ids],
            "rewards": [one if known else None for one, known in zip(rewards.tolist(), graded.tolist(), strict=True)],
            **self.measures,
            "advantage_std": float(np.std(advantages.numpy())),
            "metrics": {name: float(value) for name, value in metrics.items() if _is_number(value)},
            "seconds": round(now - self._begin, 3),
        }
        self._begin = now
        write_atomically(self._records / f"{step:06d}.json", json.dumps(record))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1)
