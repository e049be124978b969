"""From a configuration to a policy: presets, model folders and hub ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import ModelConfig, SamplingConfig
from .presets import PRESETS, Preset, prompt_style

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from .transformers_policy import TransformersPolicy


def load_policy(
    model: ModelConfig,
    sampling: SamplingConfig,
    *,
    cache: str | Path,
    weights: bool = True,
) -> TransformersPolicy:
    """The policy that a configuration names, ready to sample, score and train.

    model: Its ``chat`` and ``system`` go before those of a preset where the configuration sets them; an empty
        ``system`` leaves the system message to the template.
    cache: Folder in which `smollm2` is converted once, and found again.
    weights: False leaves them unread, whatever they are then, for a process that another one sends its shard.
    Raises FileNotFoundError if the model is neither a preset, a folder, nor a hub model that is there or can be
        fetched.
    Raises ModuleNotFoundError if the preset's package is not installed.
    Raises ValueError if the device is not there, or chat is asked of a model without a chat template.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from .model_folder import no_progress_bars
    from .transformers_policy import TransformersPolicy

    device = resolve_device(model.device)
    preset = PRESETS.get(model.name.lower(), Preset("hub"))
    folder = Path(model.name).expanduser()
    source = preset.hub_id or (folder if folder.is_dir() else model.name)
    if preset.source == "smollm2":
        from .smollm2 import smollm2_folder

        source = smollm2_folder(cache)
    options = {"trust_remote_code": False}
    try:
        with no_progress_bars():
            tokenizer = AutoTokenizer.from_pretrained(source, **options)
            if weights:
                loaded = AutoModelForCausalLM.from_pretrained(
                    source, dtype=getattr(torch, model.dtype), use_safetensors=True, **options
                ).to(device)
            else:
                loaded = _unread(source, getattr(torch, model.dtype), options)
    except OSError as error:
        raise FileNotFoundError(
            f"model {model.name!r} could not be loaded from {str(source)!r}. Known names: {', '.join(PRESETS)}; else "
            "name a folder with config.json and model.safetensors, or a hub id that is in the local cache or can be "
            f"fetched from here. The loader said: {error}"
        ) from error
    chat, system = prompt_style(model)
    return TransformersPolicy(loaded, tokenizer, sampling, chat=chat, system=system)


def _unread(source: str | Path, dtype: torch.dtype, options: dict[str, Any]) -> PreTrainedModel:
    """The model with memory that nothing was written to, so that the system need not provide it.

    Not on torch's device ``meta``: accelerate tells parameters apart by where they lie.
    """
    import torch
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    config = AutoConfig.from_pretrained(source, **options)
    with init_empty_weights():  # buffers, which nobody sends, are made
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.nn.Parameter(torch.empty_like(parameter, device="cpu")))
    model.tie_weights()
    try:
        model.generation_config = GenerationConfig.from_pretrained(source)
    except OSError:
        pass  # the model has none: what its configuration says stands
    return model


def resolve_device(name: str) -> str:
    """``auto`` as a device: a GPU where there is one.

    Raises ValueError if a GPU is asked for and there is none.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError as error:
        raise ValueError(f"device {name!r} is unknown to torch; use auto, cpu or cuda. {error}") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r}: this torch finds no GPU; use auto or cpu.")
    return name
