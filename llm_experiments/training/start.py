"""What a training run begins with: its problems, those it is tested on, and its model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from llm_experiments.config import ModelConfig, TaskConfig
from llm_experiments.seeding import seed_of
from llm_experiments.starting import ProgressBar, starting_policy
from llm_experiments.tasks import load_task
from llm_experiments.tasks.base import Problem, Task
from llm_experiments.tasks.local_files import with_local_file
from llm_experiments.training.config import RunConfig

if TYPE_CHECKING:
    from llm_experiments.policies.transformers_policy import TransformersPolicy


@dataclass(frozen=True)
class Start:
    """The beginning of a run, the same for whoever asks.

    runs: Models made here lie in ``runs/models``.
    data: Folder of local files of the tasks; those that it lacks are read from their public source.
    """

    config: RunConfig
    runs: Path
    data: Path | None
    progress: ProgressBar

    @cached_property
    def task(self) -> Task:
        """The problems to train on."""
        return load_task(self.local(self.config.task), seed=seed_of(self.config.seed, "task"))

    def check_sizes(self) -> None:
        """Raise a ValueError if there are fewer prompts than a step has."""
        problems, updates = self.task.problems, self.config.updates
        if len(problems) * updates.copies < updates.prompts:
            raise ValueError(
                f"updates.prompts = {updates.prompts} exceeds the {len(problems)} x {updates.copies} prompts of task "
                f"{self.config.task.name}; lower it, or raise task.n_prompts."
            )

    @cached_property
    def tested(self) -> tuple[Problem, ...]:
        """The problems of the test that are not trained on; a ValueError if there are none."""
        trained = {problem.prompt for problem in self.task.problems}
        found = tuple(problem for problem in self.test.problems if problem.prompt not in trained) if self.test else ()
        if self.test is not None and not found:
            raise ValueError("test.task: every problem of it is trained on.")
        return found

    @cached_property
    def test(self) -> Task | None:
        """The problems of the test, those included that are trained on; None without one."""
        settings = self.config.test
        if settings is None:
            return None
        return load_task(self.local(settings.task), seed=seed_of(0, "held out"))

    def policy(self, model: ModelConfig, *, weights: bool = True) -> TransformersPolicy:
        """The policy that the run begins with, loaded as ``model`` says.

        model: The configuration's, perhaps with another type of weights, or another model in its place.
        weights: See `llm_experiments.policies.loading.load_policy`.
        """
        return starting_policy(
            model,
            self.config.sampling,
            self.config.task,
            runs=self.runs,
            seed=0,  # the same for all seeds, and without the problems that tests may ask
            exclude=[] if self.test is None else [problem.id for problem in self.test.problems],
            progress=self.progress,
            weights=weights,
        )

    def local(self, task: TaskConfig) -> TaskConfig:
        """A task, reading a file of the folder where there is one."""
        return with_local_file(task, self.data)
