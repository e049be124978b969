"""Configurations of `law`: YAML files with one or several cells, checked before anything is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveInt, model_validator

from llm_experiments.config import (
    NAME,
    ModelConfig,
    PretrainingConfig,
    SamplingConfig,
    Section,
    StepFolders,
    TaskConfig,
    checked,
    read_yaml,
)
from llm_experiments.diagnose.config import CheckpointUpdatesConfig
from llm_experiments.tasks import MADE_WORLDS

CELLS = "cells"
OF_FILE = ("name", "n_boot")


class CellConfig(Section):
    """One policy on one task.

    seed: Of prompts, completions and updates. The base model of a synthetic task has the seed of the task's option
        ``world``, as in the studies.
    model, task, sampling: The sections that all commands share.
    teaching: Supervised training of a language model on a synthetic task, as of a study's base models. Its width and
        layers do not count.
    training: Policy-gradient updates on the prompts, from the model on.
    checkpoints: Model folders by step, with ``{step}``, in place of updates made here.
    steps: Where the inputs are measured: 0 is the model itself, i the policy after i updates.
    completions: Of each prompt, N, of which the inputs are taken; at least 4.
    history: Further completions of each prompt, H, of which Adam's mean squares are made: H batches of one of each
        prompt.
    """

    seed: int = Field(default=0, ge=0)
    model: ModelConfig
    task: TaskConfig
    sampling: SamplingConfig = SamplingConfig()
    teaching: PretrainingConfig | None = None
    training: CheckpointUpdatesConfig | None = None
    checkpoints: StepFolders | None = None
    steps: tuple[int, ...] = (0,)
    completions: int = Field(ge=4)
    history: int = Field(default=16, ge=2)

    @model_validator(mode="after")
    def _steps_have_weights(self) -> CellConfig:
        if not self.steps or min(self.steps) < 0 or list(self.steps) != sorted(set(self.steps)):
            raise ValueError(f"steps must be different, increasing and at least 0, got {list(self.steps)}.")
        if self.training is not None and self.checkpoints is not None:
            raise ValueError("give training (updates made here) or checkpoints (a path with {step}), not both.")
        if self.training is None and self.checkpoints is None and self.steps != (0,):
            raise ValueError(f"steps {list(self.steps)}: steps after 0 need training, or checkpoints to read.")
        if self.task.n_prompts == 1:
            raise ValueError("task.n_prompts must be at least 2: the law compares the gradients of different prompts.")
        if self.sampling.engine != "transformers":
            raise ValueError("sampling.engine must be transformers: norms are taken in the model that sampled.")
        return self

    @model_validator(mode="after")
    def _worlds_are_taught(self) -> CellConfig:
        if self.teaching is not None and (self.task.name not in MADE_WORLDS or self.model.pretraining is not None):
            raise ValueError(f"teaching is for language models in the worlds {', '.join(MADE_WORLDS)}.")
        return self


class LawConfig(Section):
    """The cells of one file, and what they have in common.

    name: Names the folders of the run and of its results.
    n_boot: Bootstrap draws of prompts.
    """

    name: str = Field(pattern=NAME)
    cells: Mapping[str, CellConfig] = Field(min_length=1)
    n_boot: PositiveInt = 2000

    @model_validator(mode="after")
    def _cells_name_folders(self) -> LawConfig:
        for name in self.cells:
            if not re.match(NAME, name):
                raise ValueError(f"cells: {name!r} names a folder; take letters, digits, dots, dashes and underscores.")
        return self


def load_law(path: str | Path) -> LawConfig:
    """Read and check a configuration.

    A file holds the settings of `LawConfig` and the sections of a cell. With ``cells``, a mapping of names to sections,
    each cell has the file's sections with its own settings in place of theirs. Without, the file is one cell, ``all``.

    Raises FileNotFoundError if there is no such file.
    Raises ValueError if it is not YAML, or a setting is unknown, missing or out of range; the message lists all of
        them.
    """
    content = read_yaml(path)
    own = {key: content.pop(key) for key in OF_FILE if key in content}
    cells = content.pop(CELLS, {"all": {}})
    if not isinstance(cells, dict):
        raise ValueError(f"{path}: cells must map names to settings, got {type(cells).__name__}.")
    return checked(LawConfig, str(path), own | {CELLS: {name: merged(content, cells[name] or {}) for name in cells}})


def merged(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with others in place of theirs, sections merged setting by setting."""
    found = dict(common)
    for key, value in own.items():
        nested = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if nested else value
    return found
