"""The history in verl's checkpoints: saved with each, and loaded on resume.

verl calls a checkpoint's callback only after it is declared complete, so the state is written before.
"""

import os
from typing import Any

from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.verl.options import Options

STATE_FILE = "baseline_state"  # beside "actor" and "data.pt" in global_step_N
SAMPLER_FILE = "prompt_sampler_state"
REMEDY = "begin with an empty one by +algorithm.kaestat.start_anew=True"

_Trainer: Any = object  # verl's, beside it among the bases


class SavesHistory(_Trainer):
    """Mixin to put before verl's trainers, which saves and loads the session, if the method is ours."""

    session: TrainerSession | None = None
    options: Options | None = None

    def _save_checkpoint(self) -> None:
        folder = self._folder()
        if self.session is not None:
            self.session.save(*_files(folder))
        super()._save_checkpoint()

    def _load_checkpoint(self) -> Any:
        """verl's, and our states with it; a `LostState` if one is missing and may not be."""
        found = super()._load_checkpoint()
        if self.global_steps == 0 or self.options is None:
            return found
        trainer = self.config.trainer
        folder = trainer.resume_from_path if trainer.resume_mode == "resume_path" else self._folder()
        if self.session is not None:
            history, sampler = _files(folder)
            path = history if self.session.stateful else None
            self.session.load(path, sampler, remedy=REMEDY, anew=self.options.start_anew)
        return found

    def _folder(self) -> str:
        return os.path.join(self.config.trainer.default_local_dir, f"global_step_{self.global_steps}")


def _files(folder: str) -> tuple[str, str]:
    return os.path.join(folder, STATE_FILE), os.path.join(folder, SAMPLER_FILE)
