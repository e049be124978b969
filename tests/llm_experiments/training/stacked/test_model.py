"""The stacked forward pass gives what transformers gives, run by run."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from llm_experiments.policies.model_folder import save_model
from llm_experiments.policies.tiny import TinySize, tiny_model, tiny_tokenizer
from llm_experiments.training.stacked.model import StackedDecoder
from tests.helpers.exact_norms import exact_norms


@pytest.fixture(scope="module")
def tokens(folders):
    return torch.randint(60, 100, (len(folders), 5, 9), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def originals(folders):
    return [AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval() for folder in folders]


def test_logits_are_those_of_transformers(folders, originals, tokens):
    model, parameters = StackedDecoder.load(folders)
    with torch.no_grad():
        expected = torch.stack([one(input_ids=own).logits for one, own in zip(originals, tokens, strict=True)])
        torch.testing.assert_close(model.logits(parameters, tokens), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(model.logits(parameters, tokens, skip=4), expected[:, :, 4:], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(expected[0], expected[1])


def test_gradients_are_those_of_transformers(folders, originals, tokens):
    model, parameters = StackedDecoder.load(folders)
    for weight in parameters.values():
        weight.requires_grad_()
    model.logits(parameters, tokens).square().mean((1, 2, 3)).sum().backward()
    for run, one in enumerate(originals):
        one.zero_grad()
        one(input_ids=tokens[run]).logits.square().mean().backward()
        for name, weight in one.named_parameters():
            torch.testing.assert_close(parameters[name].grad[run], weight.grad, rtol=1e-4, atol=1e-7)


@pytest.fixture(scope="module")
def llamas(tmp_path_factory):
    """Two folders of SmolLM2's family: no biases, three query heads for each of keys and values."""
    found = []
    for seed in range(2):
        config = LlamaConfig(
            vocab_size=128,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        )
        torch.manual_seed(seed)
        found.append(tmp_path_factory.mktemp("llamas") / str(seed))
        LlamaForCausalLM(config).save_pretrained(found[-1])
    return found


def test_logits_of_llama_models_are_those_of_transformers(llamas, tokens):
    model, parameters = StackedDecoder.load(llamas)
    originals = [AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval() for folder in llamas]
    with torch.no_grad():
        expected = torch.stack([one(input_ids=own).logits for one, own in zip(originals, tokens[:2], strict=True)])
        torch.testing.assert_close(model.logits(parameters, tokens[:2]), expected, rtol=1e-5, atol=1e-6)


def test_exact_norms_of_llama_models_are_those_of_a_loop(llamas):
    model, parameters = StackedDecoder.load(llamas[:1])
    prompts, completions = torch.randint(1, 128, (2, 1, 5, 4), generator=torch.Generator().manual_seed(0))
    found = exact_norms(model, parameters, prompts, completions, end=0)
    plain = AutoModelForCausalLM.from_pretrained(llamas[0], dtype=torch.float32).eval()
    for prompt, completion, norm in zip(prompts[0], completions[0], found[0], strict=True):
        plain.zero_grad()
        scores = plain(input_ids=torch.cat([prompt, completion])[None]).logits[0, 3:-1].log_softmax(-1)
        scores.gather(1, completion[:, None]).sum().backward()
        assert float(norm) == pytest.approx(
            sum(float(each.grad.square().sum()) for each in plain.parameters()), rel=1e-4
        )


def test_models_of_other_families_are_refused():
    config = LlamaConfig(tie_word_embeddings=False)
    with pytest.raises(ValueError, match="tied embeddings"):
        StackedDecoder(config)


def test_a_cache_changes_nothing(folders, tokens):
    model, parameters = StackedDecoder.load(folders)
    whole = model.logits(parameters, tokens)
    cache = []
    parts = [model.logits(parameters, part, cache=cache) for part in (tokens[:, :, :4], tokens[:, :, 4:5])]
    torch.testing.assert_close(torch.cat(parts, 2), whole[:, :, :5], rtol=1e-5, atol=1e-6)


def test_rows_that_are_too_long_are_refused(folders):
    model, parameters = StackedDecoder.load(folders[:1])
    with pytest.raises(ValueError, match="257 in a row"):
        model.logits(parameters, torch.zeros(1, 1, 257, dtype=torch.long))


def test_models_of_several_shapes_are_refused(folders, tmp_path):
    tokenizer = tiny_tokenizer()
    save_model(tmp_path / "wide", tiny_model(tokenizer, 0, TinySize(width=32, layers=2)), tokenizer)
    with pytest.raises(ValueError, match="not of one shape"):
        StackedDecoder.load([folders[0], tmp_path / "wide"])
    with pytest.raises(ValueError, match="folders is empty"):
        StackedDecoder.load([])
