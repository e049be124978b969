"""Gram matrices of scores against one plain autograd gradient per completion."""

import re

import numpy as np
import pytest
import torch

from llm_experiments.gradient.scores import gram_matrix, score_norms
from tests.helpers.small_decoders import END_ID, FAMILIES, PADDING_ID, TEMPERATURE, VOCABULARY, log_prob, tiny_model

PROMPT = [1, 5, PADDING_ID, 7, 5]  # the padding token, whose embedding torch gives no gradient, and one token twice
SUBSETS = {
    "all": r".",
    "final_block": r"layers\.2\.|lm_head",
    r"layers\.1\..*(norm|q_proj)": r"layers\.1\..*(norm|q_proj)",
    "embed_tokens": "embed_tokens",
    "lm_head": "lm_head",
    r"model\.norm|bias": r"model\.norm|bias",
}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def pooled(seed=0, n=9, longest=8):
    rng = np.random.default_rng(seed)
    drawn = [[*rng.integers(0, VOCABULARY, size=rng.integers(0, longest)).tolist(), END_ID] for _ in range(n)]
    return [*drawn, drawn[0], drawn[n // 2]]


def slow_scores(model, prompt, completions, pattern):
    """Gradient of each completion's log-probability by itself, flattened; a tied parameter goes by both names."""
    named = model.named_parameters(remove_duplicate=False)
    chosen = list({id(parameter): parameter for name, parameter in named if re.search(pattern, name)}.values())
    training = model.training
    model.eval()
    rows, log_probs = [], []
    for completion in completions:
        found = log_prob(model, prompt, completion)
        gradients = torch.autograd.grad(found, chosen, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
        log_probs.append(found.item())
    model.train(training)
    return torch.stack(rows).double().numpy(), np.array(log_probs)


def relative_error(found, expected):
    """Largest error of a Gram matrix, each entry against the norms of its two scores."""
    scale = np.sqrt(np.diagonal(expected))
    return np.abs((found - expected) / np.outer(scale, scale)).max()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("family", FAMILIES)
def test_inner_products_are_those_of_autograd_gradients(family, tied, dtype):
    model, completions = tiny_model(family, tied=tied, dtype=dtype), pooled()
    for parameters, pattern in SUBSETS.items():
        scores, log_probs = slow_scores(model, PROMPT, completions, pattern)
        found = gram_matrix(model, PROMPT, completions, temperature=TEMPERATURE, parameters=parameters)
        norms = score_norms(model, PROMPT, completions, temperature=TEMPERATURE, parameters=parameters)
        expected = scores @ scores.T
        assert relative_error(found.products, expected) < TOLERANCE[dtype], parameters
        np.testing.assert_allclose(norms.products, np.diagonal(expected), rtol=TOLERANCE[dtype])
        for result in (found, norms):
            np.testing.assert_allclose(result.log_probs, log_probs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("coordinates", [1000, 7919, 20_000])
def test_inner_products_do_not_depend_on_the_parts_that_parameters_are_taken_in(coordinates):
    model, completions = tiny_model(tied=True), pooled(n=5)
    scores, _ = slow_scores(model, PROMPT, completions, ".")
    memory = {"memory_gib": (coordinates + 0.5) * 5 * 8 / 2**30}  # of float64
    found = gram_matrix(model, PROMPT, completions, temperature=TEMPERATURE, parameters="all", **memory)
    assert relative_error(found.products, scores @ scores.T) < 1e-10
    assert scores.shape[1] > coordinates


@pytest.mark.parametrize("broken", [False, True])
def test_dropout_is_off_and_the_model_is_left_as_it_was_also_after_an_error(broken):
    model, completions = tiny_model(attention_dropout=0.5), pooled()
    scores, _ = slow_scores(model, PROMPT, completions, ".")
    frozen = model.model.layers[1].mlp.up_proj.weight.requires_grad_(False)
    model.train()
    model.model.norm.eval()
    if broken:
        with pytest.raises(ValueError, match="none of them empty"):
            gram_matrix(model, PROMPT, [*completions, []], temperature=TEMPERATURE, parameters="all")
    else:
        found = gram_matrix(model, PROMPT, completions, temperature=TEMPERATURE, parameters="all")
        assert relative_error(found.products, scores @ scores.T) < 1e-10
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [parameter for parameter in model.parameters() if not parameter.requires_grad] == [frozen]
    assert model.training and model.model.layers[0].training and not model.model.norm.training


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt_ids": []}, "prompt_ids"),
        ({"completions": [[1], []]}, "none of them empty"),
        ({"parameters": "("}, "regular expression"),
        ({"parameters": "lm_tail"}, r"lm_tail(.|\n)*embed_tokens"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    given = {"prompt_ids": PROMPT, "completions": pooled(), "temperature": 1.0} | arguments
    with pytest.raises(ValueError, match=message):
        gram_matrix(tiny_model(), given.pop("prompt_ids"), given.pop("completions"), **given)
