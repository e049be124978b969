"""From a configuration to a policy: what is found, what is refused, and how prompts are formed."""

import json

import huggingface_hub.constants
import pytest
import torch

from llm_experiments.config import ModelConfig, SamplingConfig
from llm_experiments.policies import PRESETS, Preset, load_policy, loading
from tests.helpers.small_policies import TEMPLATE, small_model, small_policy

SAMPLING = SamplingConfig(temperature=0.7, max_new_tokens=4, batch_size=3)


def load(name, tmp_path, **options):
    return load_policy(ModelConfig(name=str(name), **options), SAMPLING, cache=tmp_path / "cache")


@pytest.fixture
def chat_folder(tmp_path):
    policy = small_policy()
    policy.tokenizer.chat_template = TEMPLATE
    policy.save(tmp_path / "model")
    return tmp_path / "model"


def opened(policy) -> str:
    return policy.tokenizer.decode(policy.encode("1+1="))


def test_a_folder_is_loaded_with_the_settings_of_the_configuration(tmp_path):
    saved = small_policy()
    saved.save(tmp_path / "model")
    policy = load(tmp_path / "model", tmp_path, chat=False)
    assert (policy.sampling.temperature, policy.sampling.max_new_tokens, policy.sampling.batch_size) == (0.7, 4, 3)
    assert policy.model.dtype == torch.float32 and not policy.model.training
    completions = policy.sample("1+1=", 5, seed=0)
    expected = saved.score("1+1=", completions).log_probs
    assert [each.log_probs for each in completions] == [pytest.approx(each, abs=2e-5) for each in expected]
    assert load(tmp_path / "model", tmp_path, chat=False, dtype="bfloat16").model.dtype == torch.bfloat16


def test_a_preset_gives_the_system_message_that_the_configuration_leaves_out(chat_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(PRESETS, "here", Preset("hub", str(chat_folder), system="Step by step."))
    assert "system\nStep by step." in opened(load("Here", tmp_path))
    assert "system\nThink." in opened(load("here", tmp_path, system="Think."))
    assert opened(load("here", tmp_path, system="")).startswith("<|im_start|>user\n1+1=")
    assert opened(load("here", tmp_path, chat=False)) == "1+1="


@pytest.mark.parametrize("name", ["no/such-model", "qwen2.5-math-7b", "smolm2"])
def test_a_model_that_is_not_here_is_refused_with_what_to_do(tmp_path, monkeypatch, name):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(FileNotFoundError, match=rf"model '{name}' could not be loaded.*Known names: .*smollm2"):
        load(name, tmp_path)


def test_weights_in_a_pickle_are_refused(tmp_path):
    model, tokenizer = small_model()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"could not be loaded.*model.safetensors"):
        load(tmp_path / "model", tmp_path, chat=False)


def test_code_in_a_model_folder_is_never_run(tmp_path):
    folder, ran = tmp_path / "model", tmp_path / "ran"
    small_policy().save(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "foreign", "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(ran)!r}, 'w')\n")
    with pytest.raises(ValueError, match="trust_remote_code"):
        load(folder, tmp_path, chat=False)
    assert not ran.exists()


def test_an_unknown_or_missing_device_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert loading.resolve_device("auto") == "cpu"
    with pytest.raises(ValueError, match="device 'cuda:1': this torch finds no GPU"):
        loading.resolve_device("cuda:1")
    with pytest.raises(ValueError, match="device 'gpu' is unknown to torch"):
        loading.resolve_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert loading.resolve_device("auto") == "cuda"
