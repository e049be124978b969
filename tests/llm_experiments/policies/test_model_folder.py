"""Model folders: whole or absent, and never loaded into a model that they do not fit."""

import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from llm_experiments.policies.model_folder import load_weights, new_folder, save_model
from tests.helpers.small_policies import small_model


def weights_of(model) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first, second) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_other_types_are_cast_to_the_models_own(tmp_path):
    model, tokenizer = small_model(seed=1)
    save_model(tmp_path / "model", model.to(torch.bfloat16), tokenizer)
    target = small_model(seed=2)[0]
    load_weights(target, tmp_path / "model")
    assert {value.dtype for value in target.state_dict().values()} == {torch.float32}
    assert torch.equal(target.lm_head.weight, model.lm_head.weight.float())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_attention_heads": 2, "head_dim": 16}, "num_attention_heads is 2 there and 4 here"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, "rope_parameters is"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False there and True here"),
        ({"num_hidden_layers": 3, "layer_types": None}, "num_hidden_layers is 3 there and 2 here"),
        ({"intermediate_size": 64}, "intermediate_size is 64 there and 48 here"),
        ({"vocab_size": 300}, "vocab_size is 300 there and 258 here"),
    ],
    ids=["heads", "rotary base", "tying", "layers", "width", "vocabulary"],
)
def test_another_architecture_is_refused_and_changes_nothing(tmp_path, settings, message):
    model, tokenizer = small_model()
    other = Qwen2ForCausalLM(Qwen2Config(**(model.config.to_dict() | settings)))
    save_model(tmp_path / "model", other, tokenizer)
    before = weights_of(model)
    with pytest.raises(ValueError, match=message):
        load_weights(model, tmp_path / "model")
    assert same(weights_of(model), before)


def test_weights_that_are_missing_or_too_many_are_refused(tmp_path):
    model, tokenizer = small_model()
    save_model(tmp_path / "model", model, tokenizer)
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.extra"] = tensors.pop("model.norm.weight")
    save_file(tensors, path, metadata={"format": "pt"})
    before = weights_of(model)
    with pytest.raises(ValueError, match=r"missing_keys.*model.norm.weight.*unexpected_keys.*model.extra"):
        load_weights(model, tmp_path / "model")
    assert same(weights_of(model), before)


def test_a_folder_without_safetensors_is_refused(tmp_path):
    model, tokenizer = small_model()
    with pytest.raises(FileNotFoundError, match=r"holds no config.json"):
        load_weights(model, tmp_path / "nothing")
    save_model(tmp_path / "model", model, tokenizer)
    (tmp_path / "model" / "model.safetensors").rename(tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"holds no safetensors"):
        load_weights(model, tmp_path / "model")


@pytest.mark.parametrize("at", ["weights", "tokenizer"])
def test_an_interrupted_save_leaves_what_was_there(tmp_path, monkeypatch, at):
    model, tokenizer = small_model(seed=1)
    save_model(tmp_path / "old", model, tokenizer)
    other, _ = small_model(seed=2)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(other if at == "weights" else tokenizer, "save_pretrained", interrupt)
    for name in ("old", "new"):
        with pytest.raises(KeyboardInterrupt):
            save_model(tmp_path / name, other, tokenizer)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert torch.equal(load_file(tmp_path / "old" / "model.safetensors")["model.norm.weight"], model.model.norm.weight)


def test_what_a_killed_save_has_left_goes_a_day_later(tmp_path):
    old, young, others = tmp_path / ".model.ab.tmp", tmp_path / ".model.cd.tmp", tmp_path / ".other.ab.tmp"
    for folder in (old, young, others):
        folder.mkdir()
    os.utime(old, (0, 0))
    os.utime(others, (0, 0))
    with new_folder(tmp_path / "model"):
        pass
    assert set(tmp_path.iterdir()) == {young, others, tmp_path / "model"}
