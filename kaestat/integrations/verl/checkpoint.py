"""The history goes into every checkpoint of verl, and comes back on resume.

verl calls a ``trainer.checkpoint_callback_class`` only after it has declared the checkpoint complete
(``latest_checkpointed_iteration.txt``): a run that dies in between would leave a checkpoint without its history. So the
state is written before, into the same folder; a callback of yours, such as one that uploads the folder, finds it there.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from kaestat.integrations.shared.tracked_estimator import TrackedEstimator
from kaestat.integrations.shared.tracked_sampler import TrackedSampler
from kaestat.integrations.shared.tracked_turns import TrackedTurns
from kaestat.integrations.verl.options import Options
from kaestat.integrations.verl.token_baseline import TrackedTokens

STATE_FILE = "baseline_state"  # beside "actor" and "data.pt" in global_step_N
SAMPLER_FILE = "prompt_sampler_state"

_Trainer: Any = object  # verl's, beside it among the bases


class SavesHistory(_Trainer):
    """Mixin for verl's trainers, to stand before them among the bases.

    Attributes
    ----------
    baseline : TrackedEstimator or None
        None if ``algorithm.adv_estimator`` is none of ours (the trainer is then verl's), or turns have values.
    turns : TrackedTurns or None
        The histories of turns.
    tokens : TrackedTokens or None
        The history of a baseline for every token.
    options : Options or None
    drawn : TrackedSampler or None
        None if verl's data loader chooses the prompts.
    """

    baseline: TrackedEstimator | None = None
    turns: TrackedTurns | None = None
    tokens: TrackedTokens | None = None
    options: Options | None = None
    drawn: TrackedSampler | None = None

    def _save_checkpoint(self) -> None:
        folder = os.path.join(self.config.trainer.default_local_dir, f"global_step_{self.global_steps}")
        if (kept := self._kept) is not None:
            kept.save(os.path.join(folder, STATE_FILE))
        if self.drawn is not None:
            self.drawn.save(os.path.join(folder, SAMPLER_FILE))
        super()._save_checkpoint()

    def _load_checkpoint(self) -> Any:
        found = super()._load_checkpoint()
        if self.global_steps > 0 and (kept := self._kept) is not None:
            self._restore_history(kept, self._resumed_folder())
        if self.global_steps > 0 and self.drawn is not None:
            self._restore_sampler(self.drawn, self._resumed_folder())
        return found

    @property
    def _kept(self) -> TrackedEstimator | TrackedTurns | TrackedTokens | None:
        """The history, of whichever kind."""
        watched = self.baseline if self.turns is None else self.turns
        return watched if watched is not None and watched.stateful else self.tokens

    def _restore_sampler(self, drawn: TrackedSampler, folder: str) -> None:
        path = os.path.join(folder, SAMPLER_FILE)
        if os.path.exists(path):
            drawn.load(path)
        elif self.options is None or not self.options.start_anew:
            raise FileNotFoundError(
                f"{path}: this checkpoint was saved without a prompt sampler. Resume from one that has it, or begin "
                "with an empty one by +algorithm.kaestat.start_anew=True."
            )

    def _resumed_folder(self) -> str:
        trainer = self.config.trainer
        if trainer.resume_mode == "resume_path":
            return trainer.resume_from_path
        return os.path.join(trainer.default_local_dir, f"global_step_{self.global_steps}")

    def _restore_history(self, kept: TrackedEstimator | TrackedTurns | TrackedTokens, folder: str) -> None:
        """Take over the state of a checkpoint.

        Raises
        ------
        FileNotFoundError
            If the checkpoint has none, and the options do not allow that.
        ValueError
            If it is torn, or of another method or horizon.
        """
        assert self.options is not None  # set together
        path = os.path.join(folder, STATE_FILE)
        try:
            kept.load(path)
        except FileNotFoundError:
            if not self.options.start_anew:
                raise FileNotFoundError(
                    f"{path}: this checkpoint was saved without the history of {self.options.method!r}. Resume from "
                    "one that has it, or begin a history here with +algorithm.kaestat.start_anew=True."
                ) from None
            # No logger: a dependency of vLLM sets the root logger to ERROR.
            warnings.warn(f"{path} does not exist: the history of {self.options.method} begins here.", stacklevel=2)
