"""Memory before a run: parameters are counted exactly, and of a run that does not fit a warning tells the fix."""

import re
import warnings

import pytest
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from llm_experiments.config import ModelConfig
from llm_experiments.training.memory import check_memory
from llm_experiments.training.shapes import ModelShape, shape_of
from llm_experiments.training.verl.launch import CONFIGS, verl_run_config

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 3, "intermediate_size": 80, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip
PAPER = {path.stem: verl_run_config(path) for path in CONFIGS.glob("*.yaml") if not path.stem.startswith("tiny")}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", [Qwen2Config, LlamaConfig])
def test_parameters_are_counted_as_the_model_has_them(kind, tied):
    config = kind(**SMALL, tie_word_embeddings=tied)
    model = AutoModelForCausalLM.from_config(config)
    assert ModelShape.of_config(config).parameters == sum(weight.numel() for weight in model.parameters())


def test_what_fits_where_as_the_documentation_says():
    """7B on four sharded GPUs of 80 GB, and 1.5B on one."""
    for name, config in PAPER.items():
        shape = shape_of(config.model)
        one = {"gpus": 1, "sharded": False, "memory_gib": 80.0}
        assert warned(config, shape, gpus=4, sharded=True, memory_gib=80.0) == []
        if "7b" in name:
            (message,) = warned(config, shape, **one)
            assert re.search(r"take 1\d\d GiB .* has 80, .* shard over more", message)
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
