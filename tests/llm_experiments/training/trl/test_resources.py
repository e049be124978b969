"""Estimates of memory and time: parameters are counted exactly; of a run that may not fit a warning tells the fix."""

import re
import warnings

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config

from llm_experiments.config import ModelConfig
from llm_experiments.training.config import RunConfig, load_run_config
from llm_experiments.training.shapes import ModelShape, shape_of
from llm_experiments.training.trl.resources import Accelerator, _Run, check_memory, estimate
from llm_experiments.training.verl.launch import CONFIGS

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 3, "intermediate_size": 80, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip
PAPER = {path.stem: load_run_config(path) for path in CONFIGS.glob("*.yaml") if not path.stem.startswith("tiny")}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", [Qwen2Config, LlamaConfig])
def test_parameters_are_counted_as_the_model_has_them(kind, tied):
    config = kind(**SMALL, tie_word_embeddings=tied)
    model = AutoModelForCausalLM.from_config(config)
    assert ModelShape.of_config(config).parameters == sum(weight.numel() for weight in model.parameters())


def test_what_fits_where_as_the_documentation_says():
    """7B in full on four sharded GPUs of 80 GB, 1.5B on one, and 7B with LoRA on one."""
    for name, config in PAPER.items():
        shape = shape_of(config.model)
        one = {"gpus": 1, "sharded": False, "memory_gib": 80.0}
        assert warned(config, shape, gpus=4, sharded=True, memory_gib=80.0) == []
        if "7b" in name:
            (message,) = warned(config, shape, **one)
            assert re.search(r"about 1\d\d GiB .* has 80\. The run goes on; .* lower updates\.micro_batch", message)
            lora = config.model_copy(update={"updates": config.updates.model_copy(update={"lora_rank": 64})})
            assert warned(lora, shape, **one) == []
        else:
            assert warned(config, shape, **one) == []


def warned(config, shape, **devices) -> list[str]:
    """Warnings about a run's memory."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_memory(config, shape, **devices)
    return [str(each.message) for each in caught]


def test_a_model_that_only_a_download_would_tell_has_no_shape(tmp_path):
    assert shape_of(ModelConfig(name="somebody/some-model")) is None
    Qwen2Config(**SMALL).save_pretrained(tmp_path)
    assert shape_of(ModelConfig(name=str(tmp_path))).layers == 3


def test_verls_logits_are_held_whole():
    config = PAPER["math_qwen2.5_math_7b_g8"]
    shape = shape_of(config.model)
    pieces, whole = (
        estimate(config, shape, gpus=4, sharded=True, prompt_tokens=256, whole_logits=held) for held in (False, True)
    )
    one = 4 * (256 + 2048) * 152064 * 2 / 2**30  # of a micro-batch, in bfloat16
    assert 5 * one < whole.passes_gib - pieces.passes_gib < 6 * one
    assert whole.hours == pieces.hours


@pytest.mark.parametrize("feed_forward", [256, 1024])
def test_what_a_layer_keeps_is_what_autograd_saves(feed_forward):
    """Bytes of all tensors that a backward pass of a Llama layer would need, weights aside, by storage."""
    tokens, layers = (4, 64), 3
    shape = ModelShape(192, layers, feed_forward, 3, 1, 64, 128, tied=True, biases=False)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=128, hidden_size=192, intermediate_size=feed_forward, num_hidden_layers=layers,
            num_attention_heads=3, num_key_value_heads=1, tie_word_embeddings=True,
        )
    )  # fmt: skip
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)  # so that no address is used twice
        return tensor

    held: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.model(torch.zeros(tokens, dtype=torch.long)).last_hidden_state
    assert hidden.requires_grad
    run = RunConfig(
        name="kept",
        model={"name": "runs/model", "dtype": "float32"},
        task={"name": "arithmetic"},
        method="kae",
        updates={"steps": 1, "prompts": 8, "group_size": 1, "micro_batch": 8},
    )
    formula = _Run(run, shape, 1, False, 4, 1.0, Accelerator()).layer_bytes() * layers
    assert sum(kept.values()) / (tokens[0] * tokens[1]) == pytest.approx(formula, rel=0.1)
