"""The policy that a run of any kind begins with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from llm_experiments.config import ModelConfig, PretrainingConfig, SamplingConfig, TaskConfig
from llm_experiments.policies import load_policy
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
    steps, examples = 0, None
    if model.pretraining is not None:
        steps = model.pretraining.steps
        examples = pretraining_examples(task, model.pretraining, seed=seed_of(seed, "examples"), exclude=exclude)
    with progress("model", steps) as done:
        return load_policy(
            model,
            sampling,
            cache=runs / "models",
            seed=seed_of(seed, "model"),
            examples=examples,
            progress=lambda *_: done(),
            weights=weights,
        )


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
