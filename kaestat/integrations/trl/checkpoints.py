"""The baseline's state in a trainer's checkpoints."""

from __future__ import annotations

import os
from typing import Any

from transformers import Trainer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from kaestat.sampling import PromptSampler

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
