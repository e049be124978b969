"""What a run's folder says of the run in it: its configuration, by which it is known again."""

import json
from pathlib import Path
from typing import Any

from llm_experiments.config import checked
from llm_experiments.policies.presets import prompt_style
from llm_experiments.training.config import RunConfig

IDENTITY = "identity.json"


def identity(config: RunConfig) -> dict[str, Any]:
    """A run's configuration as plain data, with the prompt style that a preset may have chosen."""
    return config.model_dump(mode="json") | {"prompt_style": list(prompt_style(config.model))}


def refuse_others(folder: Path, mine: dict[str, Any], advice: str) -> None:
    """Raise a ValueError, which ends in the advice, if the run in a folder has other settings than these."""
    there = json.loads((folder / IDENTITY).read_text())
    differing = sorted(key for key in mine | there if mine.get(key) != there.get(key))
    if differing:
        raise ValueError(f"{folder}: holds a run with other settings ({', '.join(differing)}). {advice}")


def run_config_of(folder: Path) -> RunConfig:
    """The configuration of the run in a folder, whichever framework it was trained on.

    Raises FileNotFoundError if the folder holds no run.
    """
    content = _read(folder)
    return checked(RunConfig, str(folder), {key: content[key] for key in RunConfig.model_fields if key in content})


def prompt_style_of(folder: Path) -> tuple[bool, str | None]:
    """Whether a run's prompts went through the chat template, and their system message."""
    chat, system = _read(folder)["prompt_style"]
    return chat, system


def prompt_style_beside(model: Path) -> dict[str, Any]:
    """``chat``, and ``system`` if it has one, of the run in whose folder a model lies; empty if it lies in none."""
    folder = next((each for each in Path(model).absolute().parents[:2] if (each / IDENTITY).is_file()), None)
    if folder is None:
        return {}
    chat, system = prompt_style_of(folder)
    return {"chat": chat} | ({} if system is None else {"system": system})


def _read(folder: Path) -> dict[str, Any]:
    path = Path(folder) / IDENTITY
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; name the folder of a training run.")
    return json.loads(path.read_text())
