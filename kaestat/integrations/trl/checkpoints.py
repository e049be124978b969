"""The baseline's state in a trainer's checkpoints."""

import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint, has_length
from trl import GRPOConfig

from kaestat.integrations.shared.session import TrainerSession

STATE_FILE = "baseline_state"
SAMPLER_FILE = "prompt_sampler_state"


def save_session(trainer: Trainer, session: TrainerSession, trial: Any) -> None:
    """Write a session's states into the folder that the trainer will write next, so that it is never without them."""
    name = f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
    folder = os.path.join(trainer._get_output_dir(trial=trial), name)
    session.save(os.path.join(folder, STATE_FILE), os.path.join(folder, SAMPLER_FILE))


def load_session(trainer: Trainer, session: TrainerSession, folder: str) -> None:
    """Load the states of a checkpoint, or raise a `LostState` if one is missing."""
    remedy = (
        f"start a new run from these weights with model={folder!r} and no resume_from_checkpoint "
        f"({type(trainer).__name__} writes these files; a prompt_sampler can be left out)"
    )
    session.load(os.path.join(folder, STATE_FILE), os.path.join(folder, SAMPLER_FILE), remedy=remedy)


def last_whole_checkpoint(folder: str | os.PathLike[str]) -> str | None:
    """The latest checkpoint in a folder that was written to its end; None if there is none."""
    found = Path(folder).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    newest_first = sorted(found, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)
    return next((str(path) for path in newest_first if _is_whole(path)), None)


def check_complete(output_dir: str, resume: Any) -> None:
    """Raise a ValueError if a run was killed while it wrote the checkpoint that ``resume_from_checkpoint`` chooses."""
    if resume is True:
        resume = get_last_checkpoint(output_dir) if os.path.isdir(output_dir) else None
    if not resume or not os.path.isdir(resume) or _is_whole(Path(resume)):
        return
    whole = last_whole_checkpoint(Path(resume).parent)
    instead = "start without resume_from_checkpoint" if whole is None else f"give resume_from_checkpoint={whole!r}"
    raise ValueError(
        f"resume_from_checkpoint: {os.fspath(resume)} was not written to its end. The latest whole checkpoint beside "
        f"it: {whole}. Remove the folder, and {instead}."
    )


def _is_whole(checkpoint: Path) -> bool:
    """Whether the trainer's state, which is written last, can be read."""
    try:
        json.loads((checkpoint / TRAINER_STATE_NAME).read_text())
    except (OSError, ValueError):
        return False
    return True


class ResumePoint(TrainerCallback):
    """A callback that tells a trainer where in its epoch to resume, and warns if it cannot do so exactly."""

    def __init__(self, trainer: Any):
        self._trainer = trainer

    def on_train_begin(
        self, args: GRPOConfig, state: TrainerState, control: TrainerControl, *, train_dataloader: Any, **_: Any
    ) -> None:
        """Set the resume point before the first batch; warns if the checkpoint lies within a generation."""
        per_generation = args.steps_per_generation * args.num_iterations
        if state.global_step == 0 or args.ignore_data_skip:
            return
        behind = _batches_behind(args, state.global_step, train_dataloader)
        if behind % per_generation:
            warnings.warn(
                f"resume_from_checkpoint: step {state.global_step} lies within a generation, whose completions TRL "
                "does not save; the run generates anew and differs from the uninterrupted one. Let save_steps * "
                "gradient_accumulation_steps be a multiple of steps_per_generation * num_iterations, "
                f"{per_generation}.",
                stacklevel=2,
            )
        self._trainer.resume_after(behind)


def _batches_behind(args: GRPOConfig, updates: int, train_dataloader: Any) -> int:
    """Batches of its epoch that a run resumed after so many optimiser steps throws away, as ``Trainer`` does."""
    if has_length(train_dataloader):
        updates %= max(1, math.ceil(len(train_dataloader) / args.gradient_accumulation_steps))
    return updates * args.gradient_accumulation_steps
