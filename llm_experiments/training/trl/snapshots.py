"""Snapshots along a run on TRL, which counts optimizer updates: here they are counted in training steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

from llm_experiments.policies.model_folder import new_folder, no_progress_bars
from llm_experiments.training.config import RunConfig
from llm_experiments.training.snapshots import snapshot

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments


class SavesSnapshots(TrainerCallback):
    """Writes the policy's weights at a run's `RunConfig.snapshot_steps`.

    folder: Of the run.
    """

    def __init__(self, trainer: Trainer, config: RunConfig, folder: Path):
        self._trainer, self._folder = trainer, folder
        self._dtype = config.model.dtype
        self._steps = {step * config.updates.updates_per_step: step for step in config.snapshot_steps}

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Called by transformers after each optimizer update, in every process."""
        if state.global_step in self._steps:
            self._save(snapshot(self._folder, self._steps[state.global_step]))

    def _save(self, folder: Path) -> None:
        accelerator = self._trainer.accelerator
        state = accelerator.get_state_dict(self._trainer.model_wrapped)  # by all processes: it gathers sharded weights
        if not accelerator.is_main_process:
            return
        dtype = getattr(torch, self._dtype)
        cast = {name: value.to(dtype) if value.is_floating_point() else value for name, value in state.items()}
        with new_folder(folder) as temporary, no_progress_bars():
            accelerator.unwrap_model(self._trainer.model_wrapped).save_pretrained(temporary, state_dict=cast)
            self._trainer.processing_class.save_pretrained(temporary)
            path = temporary / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | {"dtype": self._dtype}, indent=2))
