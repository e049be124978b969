"""verl's trainer keeps a run's snapshots (``trainer.checkpoint_callback_class``). Imports verl."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from llm_experiments.training.verl.kept import Kept


class KeepsSnapshots(CheckpointCallback):
    """Saves at the steps of ``trainer.snapshots``, makes model folders of them, and removes old checkpoints.

    verl saves every ``trainer.save_freq`` steps and keeps the last ones of all: with this callback that number is the
    step of the next checkpoint, and changes with each.

    config: verl's whole configuration, that of the trainer itself.
    """

    def __init__(self, config: DictConfig):
        super().__init__(config)
        given = OmegaConf.to_container(config.trainer.snapshots)
        self.kept = Kept(Path(config.trainer.default_local_dir), **given)
        latest = self.kept.latest()
        if latest > 0:
            self.kept.keep(latest)  # in case the run was killed when it had written it
        self._set_next(latest)

    def on_save(self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **_: Any) -> None:
        """Called by verl when a checkpoint is written."""
        self.kept.keep(global_step)
        self._set_next(global_step)

    def _set_next(self, step: int) -> None:
        self.config.trainer.save_freq = self.kept.next_due(step)
