"""The baseline's state in a trainer's checkpoints."""

from __future__ import annotations

import math
import os
import warnings
from typing import TYPE_CHECKING, Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, has_length

from kaestat.sampling import PromptSampler

if TYPE_CHECKING:
    from trl import GRPOConfig

    from kaestat.integrations.trl.trainer import BaselineGRPOTrainer

STATE_FILE = "baseline_state"
SAMPLER_FILE = "prompt_sampler_state"


def next_checkpoint(trainer: Trainer, trial: Any) -> str:
    """The folder that the trainer is about to write."""
    name = f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}"
    return os.path.join(trainer._get_output_dir(trial=trial), name)


def lost_history(trainer: Trainer, path: str, method: str) -> ValueError:
    """The error of a checkpoint that lacks a state which the method needs."""
    return ValueError(
        f"resume_from_checkpoint: there is no {path}, and method {method!r} cannot go on without its history. Resume "
        f"from a checkpoint that {type(trainer).__name__} wrote, or start a new run from these weights with "
        f"model={os.path.dirname(path)!r} and no resume_from_checkpoint."
    )


def restore_sampler(sampler: PromptSampler, folder: str) -> None:
    """Take up the draws of a checkpoint, or raise a ValueError where it has none."""
    path = os.path.join(folder, SAMPLER_FILE)
    if not os.path.exists(path):
        raise ValueError(
            f"resume_from_checkpoint: there is no {path}, so the prompts that were drawn are unknown. Resume from a "
            "checkpoint that was written with a prompt_sampler, or leave prompt_sampler out."
        )
    sampler.load(path)


class ResumePoint(TrainerCallback):
    """Tells a trainer where in its epoch a resumed run goes on, and warns where it cannot go on exactly.

    Parameters
    ----------
    trainer : BaselineGRPOTrainer
    """

    def __init__(self, trainer: BaselineGRPOTrainer):
        self._trainer = trainer

    def on_train_begin(
        self, args: GRPOConfig, state: TrainerState, control: TrainerControl, *, train_dataloader: Any, **_: Any
    ) -> None:
        """After the checkpoint is loaded, before the first batch.

        Warns
        -----
        UserWarning
            If the checkpoint lies within a generation, if coming ones will, or if no batches are skipped.
        """
        per_generation = args.steps_per_generation * args.num_iterations
        if args.save_strategy == "steps":
            saved = range(int(state.save_steps), state.max_steps, int(state.save_steps))
            within = [step for step in saved if _batches_behind(args, step, train_dataloader) % per_generation]
            if within:
                warnings.warn(
                    f"save_steps={args.save_steps}: checkpoints such as that of step {within[0]} lie within "
                    "generations, whose completions TRL does not save; a run resumed there generates anew and differs "
                    "from the uninterrupted one. Let save_steps * gradient_accumulation_steps be a multiple of "
                    f"steps_per_generation * num_iterations, {per_generation}.",
                    stacklevel=2,
                )
        if state.global_step == 0:
            return
        if args.ignore_data_skip:
            warnings.warn(
                "ignore_data_skip: the resumed run begins an epoch anew and differs from the uninterrupted one.",
                stacklevel=2,
            )
            return
        behind = _batches_behind(args, state.global_step, train_dataloader)
        if behind % per_generation:
            warnings.warn(
                f"resume_from_checkpoint: step {state.global_step} lies within a generation, whose completions TRL "
                "does not save; the run generates anew and differs from the uninterrupted one.",
                stacklevel=2,
            )
        self._trainer.resume_after(behind)


def _batches_behind(args: GRPOConfig, updates: int, train_dataloader: Any) -> int:
    """Batches of its epoch that a run resumed after so many optimiser steps throws away, as ``Trainer`` does."""
    if has_length(train_dataloader):
        updates %= max(1, math.ceil(len(train_dataloader) / args.gradient_accumulation_steps))
    return updates * args.gradient_accumulation_steps
