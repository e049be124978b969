"""Errors of sampled gradients from the Gram matrix against the paper's own form: a loss and its gradient per repeat."""

import numpy as np
import pytest
import torch

from llm_experiments.diagnose.draws import Drawing
from llm_experiments.diagnose.estimators import plain_estimators, weighted_estimators
from llm_experiments.diagnose.pool_rewards import PoolRewards
from llm_experiments.gradient.repeats import gradient_errors
from llm_experiments.gradient.scores import gram_matrix
from tests.helpers.small_decoders import END_ID, TEMPERATURE, VOCABULARY, log_prob, tiny_model

PROMPTS = ([1, 5, 7], [4, 9, 9, 11], [6])
N, GROUP_SIZE, REPEATS, PAST, STEP = 10, 4, 3, 3, 7


@pytest.fixture(scope="module")
def model():
    return tiny_model(tied=True, dtype=torch.float32)


@pytest.fixture(scope="module")
def completions():
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 6, size=(len(PROMPTS), N))
    return [[[*rng.integers(0, VOCABULARY, size=n).tolist(), END_ID] for n in of_prompt] for of_prompt in sizes]


@pytest.fixture(scope="module")
def grams(model, completions):
    return np.stack(
        [
            gram_matrix(model, prompt, pool, temperature=TEMPERATURE, parameters="all").products
            for prompt, pool in zip(PROMPTS, completions, strict=True)
        ]
    )


@pytest.fixture(scope="module")
def drawn(grams):
    """Groups at the target step and a made-up history, with made-up score norms for the past."""
    rng = np.random.default_rng(4)
    rate = np.array([0.3, 0.5, 0.8])
    reward = (rng.random((len(PROMPTS), N)) < rate[:, None]).astype(float)
    past = (rng.random((len(PROMPTS), PAST, N)) < rate[:, None, None]).astype(float)
    pool = PoolRewards(STEP, reward, past).with_weights(
        "exact", np.diagonal(grams, axis1=1, axis2=2), rng.uniform(1, 9, past.shape)
    )
    return Drawing(GROUP_SIZE, replace=True).draw(pool, range(REPEATS))


def flat_gradient(loss, model):
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, list(model.parameters()))]).double()


def log_probs(model, prompt, completions):
    return torch.stack([log_prob(model, prompt, completion) for completion in completions])


def test_every_method_has_the_errors_of_its_losses_gradients(model, completions, grams, drawn):
    target = drawn.pool.target
    reference = (target - target.mean(axis=1, keepdims=True)) / N
    estimators = [*plain_estimators(), *weighted_estimators(drawn.pool)]
    assert {"none", "reinforce++", "grpo", "kae", "kae_eb", "james_stein", "kae@exact"} <= {e.name for e in estimators}
    advantages = np.stack([drawn.reward - estimator.values(drawn) for estimator in estimators])
    for position, prompt in enumerate(PROMPTS):
        pool = completions[position]
        coefficients = torch.tensor(reference[position], dtype=torch.float32)
        center = flat_gradient(-(coefficients * log_probs(model, prompt, pool)).sum(), model)
        indices = drawn.indices[:, position]
        expected = np.empty((len(estimators), REPEATS))
        for repeat in range(REPEATS):
            for method in range(len(estimators)):
                advantage = torch.tensor(advantages[method, repeat, position], dtype=torch.float32)
                loss = -(advantage * log_probs(model, prompt, [pool[h] for h in indices[repeat]])).mean()
                expected[method, repeat] = (flat_gradient(loss, model) - center).square().sum()
        found = gradient_errors(grams[position], reference[position], indices, advantages[:, :, position])
        np.testing.assert_allclose(found, expected, rtol=1e-5)
