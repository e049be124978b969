"""Scores of given completions, against autograd in float64."""

import numpy as np
import pytest
import torch

from llm_experiments.policies.token_scores import completion_log_probs
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


def gradient(model, loss) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def test_the_gradient_is_that_of_each_completion_alone(model, completions):
    weights = torch.linspace(-1, 1, len(completions))
    expected = 0
    for weight, completion in zip(weights, completions, strict=True):
        ids = torch.tensor([[*PROMPT, *completion]])
        log_pi = (model(input_ids=ids, use_cache=False).logits[0, len(PROMPT) - 1 : -1] / TEMPERATURE).log_softmax(-1)
        expected += gradient(model, weight * log_pi[range(len(completion)), completion].sum())
    log_probs, mask = completion_log_probs(model, PROMPT, completions, temperature=TEMPERATURE)
    assert mask.sum(1).tolist() == [len(each) for each in completions]
    assert not log_probs[~mask].any()
    found = gradient(model, (weights[:, None] * log_probs).sum())
    assert (found - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize(
    ("prompt", "completions", "message"),
    [((), [(1,)], "prompt_ids is empty"), ((1,), [(1,), ()], "none of them empty")],
)
def test_nothing_to_score_is_refused(model, prompt, completions, message):
    with pytest.raises(ValueError, match=message):
        scores_of(model, prompt, completions, temperature=1.0)
