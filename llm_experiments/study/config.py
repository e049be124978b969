"""Configurations of studies: what is compared, and what counts, written down before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from llm_experiments.config import NAME, PretrainingConfig, Section, TaskConfig
from llm_experiments.training.stacked.config import Design, StackConfig

RATE_ROUNDING = 1e-6  # of the logarithm of the multiple between two rates


class WorldConfig(Section):
    """A synthetic task: problems, and the models that begin in it.

    task: With the options ``world`` and ``split``.
    n_prompts: Prompts of each run's pool, drawn from the training split.
    start: What base models are made from: `smollm2` or a model folder. None makes small models from scratch.
    pretraining: Its width and layers are those of models from scratch.
    n_examples: Prompts and answers that a base model is made from.
    bases: Seeds of the base models; each has a world of its own.
    """

    task: str
    n_prompts: PositiveInt
    start: str | None = None
    pretraining: PretrainingConfig
    n_examples: PositiveInt
    bases: list[int] = Field(min_length=1)
    max_new_tokens: PositiveInt

    def split(self, base: int, split: str, n_prompts: int | None = None) -> TaskConfig:
        """The configuration of one split of a base model's world."""
        return TaskConfig(name=self.task, n_prompts=n_prompts, options={"world": base, "split": split})


class TestsConfig(Section):
    """How policies are tested along a run.

    every: Completions between tests; the first is before training.
    temperatures: In addition to greedy answers. The best on the validation problems is the matched temperature of a
        test.
    samples: Answers to each test problem at each temperature. Validation problems are answered once.
    passes: k of pass@k at temperature 1, first and last test only.
    """

    __test__ = False  # pytest: no test class

    every: PositiveInt
    temperatures: list[PositiveFloat] = Field(min_length=1)
    samples: PositiveInt = 2
    passes: PositiveInt = 8


class StudyConfig(Section):
    """A study.

    name: Names the folders of the runs and of the results.
    completions: Of each step.
    budget: Completions that each run may generate.
    rates: Learning rates that each design begins with on each base model, each the same multiple of the one before. The
        grid grows until the best of them lies inside.
    rate_seeds, seeds: Of the choice, and of what is compared; none in both.
    designs: What is compared, most important first.
    reference: A design whose runs the part `rows` keeps beside those of the recommended one.
    recommended: The design of which the study is to say whether it is worth changing to.
    rivals: Designs without a history per prompt, that the recommended one must beat.
    """

    name: str = Field(pattern=NAME)
    world: WorldConfig
    completions: PositiveInt
    budget: PositiveInt
    rates: list[PositiveFloat] = Field(min_length=3)
    rate_seeds: list[int] = Field(min_length=4)
    seeds: list[int] = Field(min_length=2)
    tests: TestsConfig
    designs: Mapping[str, Design]
    reference: str
    recommended: str
    rivals: list[str] = Field(min_length=1)

    @model_validator(mode="after")
    def _can_be_run(self) -> StudyConfig:
        roles = {"reference": [self.reference], "recommended": [self.recommended], "rivals": self.rivals}
        for role, named in roles.items():
            for name in named:
                if name not in self.designs:
                    raise ValueError(f"{role}: {name!r} is none of the designs: {', '.join(self.designs)}.")
        both = sorted({*self.rate_seeds} & {*self.seeds})
        if both:
            raise ValueError(f"rate_seeds and seeds share {both}: rates are chosen on seeds that are not compared.")
        steps = np.diff(np.log(self.rates))
        if not (steps > 0).all() or np.ptp(steps) > RATE_ROUNDING:
            raise ValueError(f"rates must increase, each the same multiple of the one before, got {self.rates}.")
        for name in self.designs:
            self.setting(name)
        return self

    def setting(self, design: str) -> StackConfig:
        """The configuration of a design's runs."""
        return StackConfig(
            design=self.designs[design],
            completions=self.completions,
            budget=self.budget,
            max_new_tokens=self.world.max_new_tokens,
        )
