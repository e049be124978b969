"""Made worlds whose models say more before they answer: taught stage by stage, from a model of short answers on.

A small model from scratch takes long to link a digit behind a hundred free letters to the prompt. Taught with few
letters first, and with twice as many at each stage, it knows the facts already and learns where they go.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from llm_experiments.config import PretrainingConfig, Section, TaskConfig
from llm_experiments.seeding import seed_of

EXAMPLES = 50_000  # of each stage


class Stage(Section):
    """One stage of teaching.

    Attributes
    ----------
    thoughts : int
        Free letters before each answer.
    batch_size : int
    """

    thoughts: PositiveInt
    batch_size: PositiveInt


class LongerAnswers(Section):
    """How a made world's base model is taught longer answers than it was made with.

    Attributes
    ----------
    begin : int
        Free letters of the model that is made from scratch.
    stages : list of Stage
        In turn; a cell takes those up to its task's own ``thoughts``.
    steps : int
        Updates of each stage.
    learning_rate : float
    """

    begin: int = Field(ge=0)
    stages: list[Stage] = Field(min_length=1)
    steps: PositiveInt
    learning_rate: PositiveFloat

    @model_validator(mode="after")
    def _answers_grow(self) -> LongerAnswers:
        lengths = [self.begin, *(stage.thoughts for stage in self.stages)]
        if lengths != sorted(set(lengths)):
            raise ValueError(f"begin and the stages' thoughts must increase, got {lengths}.")
        return self

    @property
    def lengths(self) -> list[int]:
        """Free letters that a cell's task may ask for."""
        return [self.begin, *(stage.thoughts for stage in self.stages)]


def longer_answers(
    config: LongerAnswers,
    task: TaskConfig,
    base: Path,
    *,
    cache: Path,
    device: str,
    progress: Callable[[int, int, float], None],
) -> Path:
    """The folder of a base model that has been taught answers as long as the task's; every stage is kept.

    Parameters
    ----------
    config : LongerAnswers
    task : TaskConfig
        A made world, with the option ``thoughts``.
    base : Path
        Folder of the model that was made with ``config.begin`` letters.
    cache : Path
    device : str
    progress : callable
        Called after each update; see `llm_experiments.policies.supervised.fit_answers`.
    """
    from llm_experiments.policies.supervised import taught_folder
    from llm_experiments.tasks import world_examples

    world = int(task.options.get("world", 0))
    for stage in config.stages:
        if stage.thoughts > task.options["thoughts"]:
            break
        own = task.model_copy(update={"options": task.options | {"thoughts": stage.thoughts}})
        teaching = PretrainingConfig(
            steps=config.steps, batch_size=stage.batch_size, learning_rate=config.learning_rate
        )
        base = taught_folder(
            cache,
            base,
            world_examples(own, EXAMPLES, seed=seed_of(world, "examples", stage.thoughts) % 2**32),
            teaching,
            seed_of(world, "teaching", stage.thoughts) % 2**32,
            device=device,
            progress=progress,
        )
    return base
