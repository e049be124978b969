"""The policy that a run of any kind begins with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from llm_experiments.config import ModelConfig, PretrainingConfig, SamplingConfig, TaskConfig
from llm_experiments.policies import load_policy
from llm_experiments.policies.presets import prompt_style
from llm_experiments.seeding import seed_of
from llm_experiments.tasks import pretraining_examples, world_examples

if TYPE_CHECKING:
    from llm_experiments.policies.transformers_policy import TransformersPolicy

ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""``progress(part, total)`` is a context whose value is called after each unit of the part."""


def starting_policy(
    model: ModelConfig,
    sampling: SamplingConfig,
    task: TaskConfig,
    *,
    runs: Path,
    seed: int,
    exclude: Sequence[str],
    progress: ProgressBar,
    weights: bool = True,
) -> TransformersPolicy:
    """The model that a configuration names; tiny is first trained on examples of the task.

    runs: Models made here lie in ``runs/models``.
    seed: Of tiny and its examples.
    exclude: Problems that no example may show.
    weights: See `llm_experiments.policies.loading.load_policy`.
    """
    models, making = runs / "models", model.pretraining
    with progress("model", making.steps if making else 0) as done:
        if making is not None:
            from llm_experiments.policies import tiny
            from llm_experiments.policies.loading import resolve_device

            examples = pretraining_examples(task, making, seed=seed_of(seed, "examples"), exclude=exclude)
            settings = {"device": resolve_device(model.device), "progress": lambda *_: done()}
            folder = tiny.tiny_folder(models, examples, making, seed_of(seed, "model"), **settings)
            chat, system = prompt_style(model)
            made = {"name": str(folder), "pretraining": None, "chat": chat, "system": system}
            model = model.model_copy(update=made)
        return load_policy(model, sampling, cache=models, weights=weights)


def base_model(
    models: Path,
    task: TaskConfig,
    making: PretrainingConfig,
    *,
    n_examples: int,
    start: str | None,
    device: str,
    progress: ProgressBar,
) -> Path:
    """The folder in ``models`` of a synthetic task's base model, made on the first call with the seeds of its world.

    start: What it is made from: ``smollm2`` or a model folder; None makes a small model from scratch.
    """
    from llm_experiments.policies.loading import resolve_device
    from llm_experiments.policies.smollm2 import smollm2_folder
    from llm_experiments.policies.supervised import taught_folder
    from llm_experiments.policies.tiny import tiny_folder

    world = int(task.options.get("world", 0))
    examples = world_examples(task, n_examples, seed=seed_of(world, "examples") % 2**32)
    seed = seed_of(world, "model") % 2**32
    with progress("base model", making.steps) as done:
        told = {"device": resolve_device(device), "progress": lambda *_: done()}
        if start is None:
            return tiny_folder(models, examples, making, seed, **told)
        given = smollm2_folder(models) if start == "smollm2" else Path(start)
        return taught_folder(models, given, examples, making, seed, **told)
