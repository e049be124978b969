"""The stacked forward pass gives what transformers gives, run by run."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from llm_experiments.policies.model_folder import save_model
from llm_experiments.policies.tiny import TinySize, tiny_model, tiny_tokenizer
from llm_experiments.training.stacked.model import StackedDecoder


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(60, 100, (2, 5, 9), generator=torch.Generator().manual_seed(0))


def plain(folders):
    return [AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval() for folder in folders]


def test_logits_are_those_of_transformers(family, tokens):
    model, parameters = StackedDecoder.load(family)
    with torch.no_grad():
        expected = torch.stack([one(input_ids=own).logits for one, own in zip(plain(family), tokens, strict=True)])
        torch.testing.assert_close(model.logits(parameters, tokens), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(model.logits(parameters, tokens, skip=4), expected[:, :, 4:], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(expected[0], expected[1])


def test_gradients_are_those_of_transformers(family, tokens):
    model, parameters = StackedDecoder.load(family)
    for weight in parameters.values():
        weight.requires_grad_()
    model.logits(parameters, tokens).square().mean((1, 2, 3)).sum().backward()
    for run, one in enumerate(plain(family)):
        one(input_ids=tokens[run]).logits.square().mean().backward()
        for name, weight in one.named_parameters():
            torch.testing.assert_close(parameters[name].grad[run], weight.grad, rtol=1e-4, atol=1e-7)


def test_a_cache_changes_nothing(family, tokens):
    model, parameters = StackedDecoder.load(family)
    whole = model.logits(parameters, tokens)
    cache = []
    parts = [model.logits(parameters, part, cache=cache) for part in (tokens[:, :, :4], tokens[:, :, 4:5])]
    torch.testing.assert_close(torch.cat(parts, 2), whole[:, :, :5], rtol=1e-5, atol=1e-6)


def test_long_rows_and_models_of_other_families_or_several_shapes_are_refused(folders, tmp_path):
    with pytest.raises(ValueError, match="tied embeddings"):
        StackedDecoder(LlamaConfig(tie_word_embeddings=False))
    model, parameters = StackedDecoder.load(folders[:1])
    with pytest.raises(ValueError, match="257 in a row"):
        model.logits(parameters, torch.zeros(1, 1, 257, dtype=torch.long))
    tokenizer = tiny_tokenizer()
    save_model(tmp_path / "wide", tiny_model(tokenizer, 0, TinySize(width=32, layers=2)), tokenizer)
    with pytest.raises(ValueError, match="not of one shape"):
        StackedDecoder.load([folders[0], tmp_path / "wide"])
    with pytest.raises(ValueError, match="folders is empty"):
        StackedDecoder.load([])
