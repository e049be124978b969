"""What configurations share: their sections of model, task and sampling, read from YAML and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"  # names folders


StepFolders = Annotated[str, Field(pattern=r"\{step\}")]
"""Model folders by step, such as ``runs/math7b/checkpoint-{step}``."""


class Section(BaseModel):
    """A part of a configuration: unknown settings are refused, nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=Section)


class PretrainingConfig(Section):
    """Supervised training from scratch of the `tiny` model, on problems of the same task.

    width, layers: Of the model; the width is a multiple of eight.
    hesitation: How often the training set gives up on its largest problems, between 0 and 1. It gives up on the
        smallest never, and in between in proportion to the left operand. Such a model knows more than it says, and how
        much it says depends on the problem: reinforcement learning can teach it to answer.
    """

    steps: PositiveInt = 1500
    batch_size: PositiveInt = 128
    learning_rate: PositiveFloat = 2e-3
    width: PositiveInt = Field(default=128, multiple_of=8)
    layers: PositiveInt = 4
    hesitation: float = Field(default=0.0, ge=0, le=1)


class ModelConfig(Section):
    """Which model.

    name: A preset (see `llm_experiments.policies.presets`), a model folder, or a hub id.
    chat: Whether prompts go through the tokenizer's chat template.
    system: System message of the chat template.
    device: ``auto`` takes a GPU where there is one.
    pretraining: Of the model `tiny`, which is made in the run.
    """

    name: str
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

    name: See `llm_experiments.tasks.TASKS`.
    n_prompts: Prompts to take, P, drawn without replacement; None takes all, in order.
    path: Local file of the problems, in place of the public source.
    split: Split of a public data set.
    options: Further arguments of the task.
    """

    name: str
    n_prompts: PositiveInt | None = None
    path: Path | None = None
    split: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class SamplingConfig(Section):
    """How completions are drawn.

    temperature: Logits are divided by it, in sampling and in scores alike.
    batch_size: Completions generated at once.
    """

    engine: Literal["transformers", "vllm"] = "transformers"
    temperature: PositiveFloat = 1.0
    max_new_tokens: PositiveInt = 256
    batch_size: PositiveInt = 64


def load(kind: type[S], path: str | Path) -> S:
    """Read and check a configuration file; errors as of `read_yaml` and `checked`."""
    return checked(kind, str(path), read_yaml(path))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The sections of a configuration file, unchecked.

    Raises FileNotFoundError if there is no such file.
    Raises ValueError if it is not a YAML file of sections.
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

    kind: Its class.
    origin: Where the data come from, for the message.
    Raises ValueError if a setting is unknown, missing or out of range; the message lists all of them.
    """
    try:
        return kind(**content)
    except ValidationError as error:
        raise ValueError(f"{origin}:\n" + "\n".join(_problems(error))) from None


def _problems(error: ValidationError) -> list[str]:
    """One line for each fault: where it is, and what is wrong."""
    return [f"  {'.'.join(map(str, each['loc'])) or 'configuration'}: {each['msg']}" for each in error.errors()]
