"""Scores of given completions: against autograd in float64, in any batches, with and without a shared prompt."""

import numpy as np
import pytest
import torch

from llm_experiments.policies import token_scores
from llm_experiments.policies.token_scores import completion_log_probs, prompt_cache
from llm_experiments.policies.token_scores import token_scores as scores_of
from tests.helpers.small_policies import reference_scores, small_model

PROMPT = (51, 55, 43, 53, 56, 61)
TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def model():
    return small_model()[0].eval()


@pytest.fixture(scope="module")
def completions():
    rng = np.random.default_rng(5)
    return [tuple(rng.integers(0, 258, size=length).tolist()) for length in (3, 1, 7, 2, 7, 5, 1, 4)]


@pytest.mark.parametrize("prompt", [PROMPT, PROMPT[:1]], ids=["prompt", "prompt of one token"])
def test_scores_are_those_of_autograd_in_float64(model, completions, prompt):
    found = scores_of(model, prompt, completions, temperature=TEMPERATURE)
    for n, completion in enumerate(completions):
        log_probs, norm = reference_scores(model, prompt, completion, TEMPERATURE)
        np.testing.assert_allclose(found.log_probs[n], log_probs, atol=2e-5)
        assert found.logit_norms[n] == pytest.approx(norm, abs=2e-5)
    assert [len(each) for each in found.log_probs] == [len(each) for each in completions]


@pytest.mark.parametrize("batch_tokens", [1, 5, 14, 10_000])
def test_micro_batches_change_nothing_and_keep_to_their_size(model, completions, batch_tokens):
    sizes = []
    hook = model.lm_head.register_forward_hook(lambda _module, _inputs, logits: sizes.append(logits.shape[:2]))
    try:
        found = scores_of(model, PROMPT, completions, temperature=TEMPERATURE, batch_tokens=batch_tokens)
    finally:
        hook.remove()
    whole = scores_of(model, PROMPT, completions, temperature=TEMPERATURE)
    np.testing.assert_allclose(found.logit_norms, whole.logit_norms, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(found.log_probs), np.concatenate(whole.log_probs), atol=1e-5)
    assert all(rows == 1 or rows * width <= batch_tokens for rows, width in sizes)


def test_chunks_of_the_vocabulary_change_nothing(model, completions, monkeypatch):
    whole = scores_of(model, PROMPT, completions, temperature=TEMPERATURE)
    monkeypatch.setattr(token_scores, "LOGITS_PER_CHUNK", 258 * 4)
    chunked = scores_of(model, PROMPT, completions, temperature=TEMPERATURE)
    np.testing.assert_array_equal(chunked.logit_norms, whole.logit_norms)
    assert chunked.log_probs == whole.log_probs


def gradient(model, loss) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("share_prompt", [True, False])
def test_the_gradient_is_that_of_each_completion_alone(model, completions, share_prompt):
    weights = torch.linspace(-1, 1, len(completions))
    expected = 0
    for weight, completion in zip(weights, completions, strict=True):
        ids = torch.tensor([[*PROMPT, *completion]])
        log_pi = (model(input_ids=ids, use_cache=False).logits[0, len(PROMPT) - 1 : -1] / TEMPERATURE).log_softmax(-1)
        expected += gradient(model, weight * log_pi[range(len(completion)), completion].sum())
    log_probs, mask = completion_log_probs(
        model, PROMPT, completions, temperature=TEMPERATURE, share_prompt=share_prompt
    )
    assert mask.sum(1).tolist() == [len(each) for each in completions]
    assert not log_probs[~mask].any()
    found = gradient(model, (weights[:, None] * log_probs).sum())
    assert (found - expected).norm() < 1e-5 * expected.norm()


def test_a_repeated_prompt_is_computed_once(model):
    batches = []
    hook = model.model.layers[0].register_forward_hook(lambda _m, _i, output: batches.append(output.shape[:2]))
    try:
        cache = prompt_cache(model, [PROMPT, PROMPT[::-1], PROMPT, PROMPT])
    finally:
        hook.remove()
    assert batches == [(2, len(PROMPT) - 1)]
    keys = cache.layers[0].keys
    assert keys.shape[0] == 4 and torch.equal(keys[0], keys[3]) and not torch.allclose(keys[0], keys[1])


@pytest.mark.parametrize(
    ("prompt", "completions", "batch_tokens", "message"),
    [
        ((), [(1,)], 9, "prompt_ids is empty"),
        ((1,), [(1,), ()], 9, "none of them empty"),
        (PROMPT, [(1,)], 0, "batch_tokens must be at least 1, got 0"),
    ],
)
def test_nothing_to_score_and_a_micro_batch_of_no_token_are_refused(model, prompt, completions, batch_tokens, message):
    with pytest.raises(ValueError, match=message):
        scores_of(model, prompt, completions, temperature=1.0, batch_tokens=batch_tokens)
