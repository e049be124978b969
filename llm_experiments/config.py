"""Configurations: YAML files, checked before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"  # names folders


class Section(BaseModel):
    """A part of a configuration: unknown settings are refused, nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=Section)


class PretrainingConfig(Section):
    """Supervised training from scratch of the `tiny` model, on problems of the same task.

    Attributes
    ----------
    steps, batch_size : int
    learning_rate : float
    width, layers : int
        Of the model; the width is a multiple of eight.
    hesitation : float
        How often the training set gives up on its largest problems, between 0 and 1. It gives up on the smallest never,
        and in between in proportion to the left operand. Such a model knows more than it says, and how much it
        says depends on the problem: reinforcement learning can teach it to answer.
    """

    steps: PositiveInt = 1500
    batch_size: PositiveInt = 128
    learning_rate: PositiveFloat = 2e-3
    width: PositiveInt = Field(default=128, multiple_of=8)
    layers: PositiveInt = 4
    hesitation: float = Field(default=0.0, ge=0, le=1)


class ModelConfig(Section):
    """Which model.

    Attributes
    ----------
    name : str
        A preset (see `llm_experiments.policies.presets`), a model folder, or a hub id.
    revision : str or None
        Commit of a hub id.
    chat : bool
        Whether prompts go through the tokenizer's chat template.
    system : str or None
        System message of the chat template.
    dtype : {"float32", "bfloat16"}
    device : str
        ``auto`` takes a GPU where there is one.
    pretraining : PretrainingConfig or None
        Of the model `tiny`, which is made in the run.
    """

    name: str
    revision: str | None = None
    chat: bool = True
    system: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "auto"
    pretraining: PretrainingConfig | None = None

    @model_validator(mode="after")
    def _tiny_is_trained(self) -> ModelConfig:
        if (self.name == "tiny") != (self.pretraining is not None):
            raise ValueError("pretraining belongs to the model tiny, and tiny needs it.")
        return self


class TaskConfig(Section):
    """Which problems.

    Attributes
    ----------
    name : str
        See `llm_experiments.tasks.TASKS`.
    n_prompts : int or None
        Prompts to take, P, drawn without replacement; None takes all, in order.
    path : Path or None
        Local file of the problems, in place of the public source.
    split : str or None
        Split of a public data set.
    options : dict
        Further arguments of the task.
    """

    name: str
    n_prompts: PositiveInt | None = None
    path: Path | None = None
    split: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class SamplingConfig(Section):
    """How completions are drawn; see `llm_experiments.policies.base.SamplingSettings`."""

    engine: Literal["transformers", "vllm"] = "transformers"
    temperature: PositiveFloat = 1.0
    max_new_tokens: PositiveInt = 256
    batch_size: PositiveInt = 64


class TrainingConfig(Section):
    """Policy-gradient updates on the fixed minibatch, whose checkpoints are diagnosed.

    Attributes
    ----------
    method : str
        A method of `kaestat`, such as ``kae:bandwidth=10``.
    group_size : int
        Completions per prompt and step, G.
    learning_rate : float
    batch_tokens : int
        Tokens per forward and backward pass.
    """

    method: str = "kae"
    group_size: PositiveInt = 8
    learning_rate: PositiveFloat = 1e-6
    batch_tokens: PositiveInt = 4096


class DiagnosticConfig(Section):
    """Sizes of the pools and of the value diagnostic.

    Attributes
    ----------
    steps : tuple of int
        Target steps i; checkpoint i is the policy before update i, so 0 is the initial model.
    history : int
        Past steps i-1, ..., i-history whose policies give KAE its past.
    group_size : int
        Completions per prompt in each repeat, G.
    n_oracle : int
        Target-step completions per prompt that make the oracle value.
    n_estimation : int
        Target-step completions per prompt, disjoint from these, that current groups are drawn from.
    n_history : int
        Completions per prompt at each past step.
    repeats : int
        R.
    bandwidths : tuple of float
        Of the sensitivity analysis, in steps.
    kernels : tuple of str
        Likewise.
    n_boot : int
        Bootstrap draws of prompts.
    """

    steps: tuple[int, ...]
    history: PositiveInt = 4
    group_size: PositiveInt = 8
    n_oracle: PositiveInt = 48
    n_estimation: PositiveInt = 16
    n_history: PositiveInt = 16
    repeats: PositiveInt = 200
    bandwidths: tuple[PositiveFloat, ...] = (2, 3, 5, 7, 10, 15, 20, 40)
    kernels: tuple[str, ...] = ("triangular", "exponential")
    n_boot: PositiveInt = 2000

    @model_validator(mode="after")
    def _sizes_fit(self) -> DiagnosticConfig:
        if not self.steps or min(self.steps) < self.history:
            raise ValueError(f"steps {self.steps} must not be empty, nor begin before history = {self.history}.")
        if len(set(self.steps)) != len(self.steps):
            raise ValueError(f"steps {self.steps} must differ.")
        if self.group_size < 2 or self.n_oracle < 2:
            raise ValueError("group_size and n_oracle must be at least 2, for leave-one-out values and for debiasing.")
        for name in ("n_estimation", "n_history"):
            if getattr(self, name) < self.group_size:
                raise ValueError(f"{name} = {getattr(self, name)} must be at least group_size = {self.group_size}.")
        return self

    @property
    def n_target(self) -> int:
        """Target-step completions per prompt: oracle and estimation pools; the reference pool of the gradients."""
        return self.n_oracle + self.n_estimation

    def pool_sizes(self) -> dict[int, int]:
        """Completions per prompt at each checkpoint that needs any, in the order of the steps."""
        sizes: dict[int, int] = {}
        for target in self.steps:
            wanted = {target: self.n_target} | dict.fromkeys(range(target - self.history, target), self.n_history)
            for step, size in wanted.items():
                sizes[step] = max(size, sizes.get(step, 0))
        return dict(sorted(sizes.items()))


class GradientConfig(Section):
    """The gradient diagnostic.

    Attributes
    ----------
    parameters : str
        ``all``, ``final_block`` (final decoder block and output layer, as the paper for 7B), or a regular expression
        that parameter names must match.
    repeats : int
        M.
    n_prompts : int or None
        Prompts whose Gram matrices are computed; None takes all.
    memory_gib : float
        Working memory of the Gram matrix beyond the model itself.
    exact_history_weights : bool
        Whether the score norms of past completions are computed too, each at its own checkpoint, for the
        score-weighted forms of estimators with a history.
    """

    parameters: str = "final_block"
    repeats: PositiveInt = 1000
    n_prompts: PositiveInt | None = None
    memory_gib: PositiveFloat = 4.0
    exact_history_weights: bool = True


class Config(Section):
    """A whole diagnostic run.

    Attributes
    ----------
    name : str
        Names the folders of the run and of its results.
    seed : int
    model, task, sampling, training, diagnostic, gradient
        The sections. Without ``training``, ``checkpoints`` names existing ones.
    checkpoints : str or None
        Model folders by step, such as ``runs/math7b/checkpoint-{step}``.
    """

    name: str = Field(pattern=NAME)
    seed: int = Field(default=0, ge=0)
    model: ModelConfig
    task: TaskConfig
    sampling: SamplingConfig = SamplingConfig()
    training: TrainingConfig | None = None
    checkpoints: str | None = None
    diagnostic: DiagnosticConfig
    gradient: GradientConfig = GradientConfig()

    @model_validator(mode="after")
    def _one_source_of_checkpoints(self) -> Config:
        if (self.training is None) == (self.checkpoints is None):
            raise ValueError("give either training (updates made here) or checkpoints (a path with {step}).")
        if self.checkpoints is not None and "{step}" not in self.checkpoints:
            raise ValueError(f"checkpoints {self.checkpoints!r} must contain {{step}}.")
        return self


class EvaluationConfig(Section):
    """An evaluation of one model.

    Attributes
    ----------
    name : str
        Names the folders of completions and results.
    seed : int
    model, sampling
        As in `Config`. The paper evaluates at temperature 0.6.
    suite : str
        See `llm_experiments.evaluation.suites.parse_suite`.
    limit : int or None
        Problems of each set, its first; None takes all.
    options : dict
        Further arguments of the sets' tasks, such as ``workers`` of the verifier or another ``template``.
    """

    name: str = Field(pattern=NAME)
    seed: int = Field(default=0, ge=0)
    model: ModelConfig
    sampling: SamplingConfig = SamplingConfig(temperature=0.6, max_new_tokens=2048)
    suite: str = "paper"
    limit: PositiveInt | None = None
    options: dict[str, Any] = Field(default_factory=dict)


def load_config(path: str | Path) -> Config:
    """Read and check a configuration.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no YAML, or a setting is unknown, missing or out of range; the message lists all of them.
    """
    return checked(Config, str(path), read_yaml(path))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The sections of a configuration file, unchecked.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no YAML file of sections.
    """
    try:
        content = yaml.safe_load(Path(path).read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not a YAML file: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: must hold sections such as model: and task:, got {type(content).__name__}.")
    return content


def checked(kind: type[S], origin: str, content: dict[str, Any]) -> S:
    """A section or a whole configuration from plain data.

    Parameters
    ----------
    kind : type
        Its class.
    origin : str
        Where the data come from, for the message.
    content : dict

    Raises
    ------
    ValueError
        If a setting is unknown, missing or out of range; the message lists all of them.
    """
    try:
        return kind(**content)
    except ValidationError as error:
        raise ValueError(f"{origin}:\n" + "\n".join(_problems(error))) from None


def _problems(error: ValidationError) -> list[str]:
    """One line for each fault: where it is, and what is wrong."""
    return [f"  {'.'.join(map(str, each['loc'])) or 'configuration'}: {each['msg']}" for each in error.errors()]
