"""A study's main contrasts once more, trained by TRL instead of as a stack."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pandas as pd
import torch
from transformers import AutoTokenizer

from llm_experiments.config import ModelConfig, SamplingConfig, checked
from llm_experiments.policies.transformers_policy import TransformersPolicy
from llm_experiments.training.config import OptimizationConfig, RunConfig
from llm_experiments.training.run import TrainingRun
from llm_experiments.training.stacked.codec import TokenCodec
from llm_experiments.training.stacked.loop import StackedTraining

from .config import StudyConfig
from .curves import CURVE_COLUMNS, Tasks, Tests

Progress = Callable[[str, int], AbstractContextManager[Callable[[], None]]]


def confirmed_curve(
    study: StudyConfig, design: str, base: int, seed: int, rate: float, folder: Path, runs: Path, progress: Progress
) -> pd.DataFrame:
    """The learning curve of one run of TRL's trainer, measured as the study's own are.

    Model, pool, test problems and learning rate are those of the stacked run with this seed; the order of the prompts
    and the random numbers of training are TRL's.

    Parameters
    ----------
    study : StudyConfig
    design : str
    base, seed : int
    rate : float
    folder : Path
        Of the base model.
    runs : Path
        Where TRL's run is kept.
    progress : callable
        As for `TrainingRun`.

    Returns
    -------
    DataFrame
        Columns `CURVE_COLUMNS`.

    Raises
    ------
    ValueError
        If the design samples by a policy or drops groups, which this trainer does not.
    """
    measured = _Measured(study, design, base, seed, rate, folder)
    config = run_config(study, design, base, seed, rate, folder)
    run = TrainingRun(config, runs=runs, progress=progress, watch=measured.watch)
    shutil.rmtree(run.folder, ignore_errors=True)  # of an interrupted one, whose tests are lost
    run.run()
    return pd.concat(measured.rows, ignore_index=True)[CURVE_COLUMNS]


def run_config(study: StudyConfig, design: str, base: int, seed: int, rate: float, folder: Path) -> RunConfig:
    """What TRL's trainer is told for a design of a study."""
    chosen = study.designs[design]
    plain = chosen.sampling == "uniform" and chosen.coding == "binary" and chosen.keys == "prompt"
    if not plain or chosen.filtered:
        raise ValueError(
            f"confirmation: design {design} samples by a policy, drops groups, codes rewards as -1 and 1, or has one "
            "baseline for all prompts, which TRL's trainer does not do here; take another design."
        )
    setting = study.setting(design)
    return checked(
        RunConfig,
        f"confirmation of {study.name}",
        {
            "name": f"{study.name}-{design}-{base}",
            "seed": seed,
            "model": ModelConfig(name=str(folder), chat=False, device="cpu"),
            "task": study.world.split(base, "train", study.world.n_prompts),
            "sampling": SamplingConfig(
                temperature=setting.temperature,
                max_new_tokens=setting.max_new_tokens,
                batch_size=setting.completions,
            ),
            "method": chosen.method,
            "weights": chosen.weights,
            "scale": chosen.scale,
            "updates": OptimizationConfig(
                steps=-(-setting.budget // setting.completions),
                prompts=setting.completions // chosen.group_size,
                group_size=chosen.group_size,
                learning_rate=rate,
                max_grad_norm=setting.max_grad_norm,
                micro_batch=setting.completions,
                save_every=setting.budget,  # a run takes minutes: begun anew if it is interrupted
            ),
        },
    )


class _Measured:
    """Sees the policy in training, and tests it as a stack of one."""

    def __init__(self, study: StudyConfig, design: str, base: int, seed: int, rate: float, folder: Path):
        setting, tasks = study.setting(design), Tasks.of(study.world, base, [seed])
        codec = TokenCodec(AutoTokenizer.from_pretrained(folder))
        self._stack = StackedTraining(setting, [folder], tasks.pools, [seed], codec, [rate])
        self._tests = Tests(study.tests, self._stack, [tasks.validation], [tasks.test], [seed])
        self._completions, self._budget = setting.completions, setting.budget
        self._every, self._due = study.tests.every, 0
        self.rows: list[pd.DataFrame] = []

    @torch.no_grad()
    def watch(self, policy: TransformersPolicy, step: int) -> None:
        generated = step * self._completions
        if generated < min(self._due, self._budget):
            return
        self._due += self._every
        weights = policy.model.state_dict()
        for name, each in self._stack.parameters.items():
            each.copy_(weights[name][None])
        ends = generated == 0 or generated >= self._budget
        self.rows.append(self._tests.rows(passes=ends).assign(updates=step, generated=generated))
