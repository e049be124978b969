"""The history in verl's checkpoints: saved with each, and loaded on resume.

verl calls a ``trainer.checkpoint_callback_class`` only after it has declared the checkpoint complete
(``latest_checkpointed_iteration.txt``): a run that dies in between would leave a checkpoint without its history. So the
state is written before, into the same folder; a callback of yours, such as one that uploads the folder, finds it there.
"""

from __future__ import annotations

import os
from typing import Any

from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.verl.options import Options

STATE_FILE = "baseline_state"  # beside "actor" and "data.pt" in global_step_N
SAMPLER_FILE = "prompt_sampler_state"
REMEDY = "begin with an empty one by +algorithm.kaestat.start_anew=True"

_Trainer: Any = object  # verl's, beside it among the bases


class SavesHistory(_Trainer):
    """Mixin to put before verl's trainers, which saves and loads the session of completions or of turns.

    It is None if ``algorithm.adv_estimator`` is not ours: the trainer is then verl's.
    """

    session: TrainerSession | None = None
    options: Options | None = None

    def _save_checkpoint(self) -> None:
        files = self._files(self.config.trainer.default_local_dir)
        if self.session is not None:
            self.session.save(*files)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> Any:
        """verl's, and our states with it; a `LostState` if one is missing and may not be."""
        found = super()._load_checkpoint()
        if self.global_steps == 0 or self.options is None:
            return found
        trainer = self.config.trainer
        resumed = trainer.resume_from_path if trainer.resume_mode == "resume_path" else None
        files, anew = self._files(trainer.default_local_dir, resumed), self.options.start_anew
        if self.session is not None:
            self.session.load(files[0] if self.session.stateful else None, files[1], remedy=REMEDY, anew=anew)
        return found

    def _files(self, folder: str, resumed: str | None = None) -> tuple[str, str]:
        resumed = resumed or os.path.join(folder, f"global_step_{self.global_steps}")
        return os.path.join(resumed, STATE_FILE), os.path.join(resumed, SAMPLER_FILE)
