"""Configurations of studies: what is compared, and what counts, written down before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from kaestat import AdvantageEstimator
from kaestat.sampling import POLICIES
from llm_experiments.config import NAME, PretrainingConfig, Section, TaskConfig, checked, read_yaml
from llm_experiments.training.stacked.config import Design, Optimizer, StackConfig


class WorldConfig(Section):
    """A made world: problems, and the models that begin in it.

    Attributes
    ----------
    task : str
        With the options ``world`` and ``split``.
    options : dict
        Further options of the task.
    n_prompts : int
        Prompts of each run's pool, drawn from the training split.
    pretraining : PretrainingConfig
    n_examples : int
        Prompts and answers that a base model is made from.
    bases : list of int
        Seeds of the base models; each has a world of its own.
    max_new_tokens : int
    """

    task: str
    options: dict[str, Any] = Field(default_factory=dict)
    n_prompts: PositiveInt
    pretraining: PretrainingConfig
    n_examples: PositiveInt
    bases: list[int] = Field(min_length=1)
    max_new_tokens: PositiveInt

    def split(self, base: int, split: str, n_prompts: int | None = None) -> TaskConfig:
        """The configuration of one split of a base model's world."""
        return TaskConfig(name=self.task, n_prompts=n_prompts, options=self.options | {"world": base, "split": split})


class TestsConfig(Section):
    """How policies are tested along a run.

    Attributes
    ----------
    every : int
        Completions between tests; the first is before training.
    temperatures : list of float
        Besides greedy answers. The best on the validation problems is the matched temperature of a test.
    samples : int
        Answers to each test problem at each temperature. Validation problems are answered once.
    passes : int
        k of pass@k at temperature 1, first and last test only.
    """

    __test__ = False  # pytest: no test class

    every: PositiveInt
    temperatures: list[PositiveFloat] = Field(min_length=1)
    samples: PositiveInt = 2
    passes: PositiveInt = 8


class ConfirmationConfig(Section):
    """What is trained by TRL as well.

    Attributes
    ----------
    designs : list of str
        The reference among them; with uniform sampling and whole groups.
    bases, seeds : list of int
        Some of the study's.
    """

    designs: list[str] = Field(min_length=2)
    bases: list[int] = Field(min_length=1)
    seeds: list[int] = Field(min_length=2)


class StudyConfig(Section):
    """A study.

    Attributes
    ----------
    name : str
        Names the folders of the runs and of the results.
    world : WorldConfig
    completions : int
        Of each step.
    budget : int
        Completions that each run may generate.
    optimizer : {"adamw", "sgd"}
    rates : list of float
        Learning rates of which each design gets its best, chosen by ``rate_seeds`` on the first base model.
    rate_seeds, seeds : list of int
        Of the choice, and of what is compared; none in both.
    tests : TestsConfig
    designs : dict of str to Design
        What is compared, most important first.
    reference : str
        The design that the others are compared with.
    control : str
        Another one, without any baseline, that a recommended design must not lose to.
    recommended : str
        The design of which the study is to say whether it is worth changing to.
    confirmation : ConfirmationConfig or None
        None confirms nothing.
    """

    name: str = Field(pattern=NAME)
    world: WorldConfig
    completions: PositiveInt
    budget: PositiveInt
    optimizer: Optimizer = "adamw"
    rates: list[PositiveFloat] = Field(min_length=1)
    rate_seeds: list[int] = Field(min_length=1)
    seeds: list[int] = Field(min_length=2)
    tests: TestsConfig
    designs: Mapping[str, Design]
    reference: str
    control: str
    recommended: str
    confirmation: ConfirmationConfig | None = None

    @model_validator(mode="after")
    def _can_be_run(self) -> StudyConfig:
        for role in ("reference", "control", "recommended"):
            if getattr(self, role) not in self.designs:
                raise ValueError(f"{role} = {getattr(self, role)!r} is none of the designs: {', '.join(self.designs)}.")
        both = sorted({*self.rate_seeds} & {*self.seeds})
        if both:
            raise ValueError(f"rate_seeds and seeds share {both}: rates are chosen on seeds that are not compared.")
        if self.rates != sorted(set(self.rates)):
            raise ValueError(f"rates must be different and increasing, got {self.rates}.")
        for name, design in self.designs.items():
            AdvantageEstimator(design.method, scale=design.scale)
            if design.sampling not in ("uniform", *POLICIES):
                known = ", ".join(["uniform", *POLICIES])
                raise ValueError(f"designs.{name}: sampling {design.sampling!r} is none of {known}.")
            self.setting(name)
        if self.confirmation is not None:
            self._confirmable(self.confirmation)
        return self

    def _confirmable(self, chosen: ConfirmationConfig) -> None:
        for kind, known in (("designs", self.designs), ("bases", self.world.bases), ("seeds", self.seeds)):
            strange = [each for each in getattr(chosen, kind) if each not in known]
            if strange:
                raise ValueError(f"confirmation.{kind}: {strange[0]!r} is none of the study's.")
        if self.reference not in chosen.designs:
            raise ValueError(f"confirmation.designs lacks the reference, {self.reference}.")

    def setting(self, design: str) -> StackConfig:
        """The configuration of a design's runs."""
        return StackConfig(
            design=self.designs[design],
            completions=self.completions,
            budget=self.budget,
            max_new_tokens=self.world.max_new_tokens,
            optimizer=self.optimizer,
        )


def load_study(path: str | Path) -> StudyConfig:
    """A study from a YAML file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a setting is unknown or wrong; the message names it.
    """
    return checked(StudyConfig, str(path), read_yaml(path))
