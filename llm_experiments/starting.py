"""The policy that a run of any kind begins with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from llm_experiments.config import ModelConfig, SamplingConfig, TaskConfig
from llm_experiments.policies import load_policy
from llm_experiments.seeding import seed_of
from llm_experiments.tasks import pretraining_examples

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
