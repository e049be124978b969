"""Inner products of prompts' mean gradients against plain autograd, one completion at a time."""

import re

import numpy as np
import pytest
import torch

from llm_experiments.gradient import mean_gradients
from llm_experiments.gradient.gram import gram_matrix
from llm_experiments.gradient.mean_gradients import WeightedScores, check_products, mean_products
from llm_experiments.gradient.store import MeanProducts, ScoreStore
from tests.helpers.small_decoders import END_ID, LAYERS, TEMPERATURE, VOCABULARY, tiny_model

PROMPTS = ([1, 5, 7], [4, 9, 9, 11], [6])
SUBSETS = {"all": ".", "final_block": rf"layers\.{LAYERS - 1}\.|lm_head", "q_proj|norm": "q_proj|norm"}


def terms():
    rng = np.random.default_rng(3)
    found = []
    for prompt in PROMPTS:
        completions = [[*rng.integers(0, VOCABULARY, size=rng.integers(0, 6)).tolist(), END_ID] for _ in range(7)]
        coefficients = rng.normal(size=8)
        coefficients[2] = 0.0
        found.append(WeightedScores(prompt, [*completions, completions[0]], coefficients))
    return found


def slow_vector(model, term, pattern):
    """One completion after the other."""
    named = model.named_parameters(remove_duplicate=False)
    chosen = list({id(parameter): parameter for name, parameter in named if re.search(pattern, name)}.values())
    total = 0
    for completion, coefficient in zip(term.completions, term.coefficients, strict=True):
        logits = model(torch.tensor([[*term.prompt_ids, *completion]])).logits[0, len(term.prompt_ids) - 1 : -1]
        log_prob = (logits / TEMPERATURE).log_softmax(-1).gather(1, torch.tensor(completion)[:, None]).sum()
        gradients = torch.autograd.grad(log_prob, chosen, allow_unused=True, materialize_grads=True)
        total = total + coefficient * torch.cat([gradient.flatten() for gradient in gradients]).double()
    return total.numpy()


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("parameters", SUBSETS)
def test_products_are_those_of_autograd_gradients(parameters, tied, monkeypatch):
    monkeypatch.setattr(mean_gradients, "LOGITS_AT_ONCE", 8 * VOCABULARY)  # some completions at a time
    model, given = tiny_model(tied=tied, dtype=torch.float32), terms()
    vectors = np.array([slow_vector(model, term, SUBSETS[parameters]) for term in given])
    found = mean_products(model, given, temperature=TEMPERATURE, parameters=parameters)
    expected = vectors @ vectors.T
    np.testing.assert_allclose(found.own, np.diagonal(expected), rtol=1e-4)
    scale = np.diagonal(expected).max()
    np.testing.assert_allclose(found.with_total, expected.sum(axis=1), atol=1e-4 * scale)
    np.testing.assert_allclose(found.across, expected.sum(axis=1) - np.diagonal(expected), atol=1e-4 * scale)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_products_agree_with_the_gram_matrices_and_others_are_refused():
    model, given = tiny_model(dtype=torch.float32), terms()
    found = mean_products(model, given, temperature=TEMPERATURE, parameters="all")
    coefficients = np.array([term.coefficients for term in given])
    grams = np.array(
        [
            gram_matrix(model, each.prompt_ids, each.completions, temperature=TEMPERATURE, parameters="all").gram
            for each in given
        ]
    )
    check_products(found, grams, coefficients)
    with pytest.raises(ValueError, match="prompt 0: the squared norm of its mean gradient"):
        check_products(found, 1.2 * grams, coefficients)


def test_a_prompt_whose_coefficients_are_all_0_has_no_gradient():
    model = tiny_model(dtype=torch.float32)
    first, second, _ = terms()
    still = WeightedScores(second.prompt_ids, second.completions, 0 * second.coefficients)
    found = mean_products(model, [first, still], temperature=TEMPERATURE, parameters="all")
    assert found.own[1] == found.with_total[1] == found.across[0] == 0.0 < found.own[0]


def test_products_come_back_for_the_same_weights_and_sizes_alone(tmp_path):
    store = ScoreStore(tmp_path, {"model": "made up"})
    given = MeanProducts(np.array([1.0, 2.0]), np.array([0.5, -3.0]))
    assert store.read_products(3, "digest", 2, 16) is None
    store.write_products(3, "digest", 16, given)
    back = store.read_products(3, "digest", 2, 16)
    np.testing.assert_array_equal(back.own, given.own)
    np.testing.assert_array_equal(back.across, [-0.5, -5.0])
    assert store.read_products(3, "digest", 2, 32) is None and store.read_products(4, "digest", 2, 16) is None
    with pytest.raises(ValueError, match="products of other weights"):
        store.read_products(3, "another", 2, 16)
