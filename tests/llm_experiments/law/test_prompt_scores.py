"""One prompt's norms and class sums against autograd, one completion at a time, in plain and in Adam's units."""

import numpy as np
import pytest
import torch

from llm_experiments.law import prompt_scores as module
from llm_experiments.law.mean_squares import mean_squares
from llm_experiments.law.prompt_scores import Sketch, prompt_scores
from tests.helpers.small_decoders import END_ID, TEMPERATURE, VOCABULARY, log_prob, tiny_model
from tests.integrations.test_gradient_norms import roots

PROMPT = [1, 5, 7]
SETTINGS = {"temperature": TEMPERATURE}
REWARDS = np.array([1, 0, 0, 1, 0, 1, 0, 0, 1], dtype=float)
PAST_REWARDS = np.array([[1, 0, 0, 1], [0, 1, 0, 0.0]])


def completions():
    rng = np.random.default_rng(3)
    found = [[*rng.integers(0, VOCABULARY, size=rng.integers(0, 6)).tolist(), END_ID] for _ in range(8)]
    return [*found, found[0]]  # one was drawn twice


def loop(model, prompt, texts):
    """Each completion's gradient by parameter, float64."""
    rows = []
    for text in texts:
        score, parameters = log_prob(model, prompt, text), list(model.parameters())
        found = torch.autograd.grad(score, parameters, allow_unused=True, materialize_grads=True)
        rows.append([each.double() for each in found])
    return rows


def vectors(model, texts, squares=None):
    """Whole gradients in a metric, shape (N, D)."""
    divisors = [roots(each, squares) for each in model.parameters()]
    rows = loop(model, PROMPT, texts)
    return torch.stack([torch.cat([(g / d).flatten() for g, d in zip(row, divisors, strict=True)]) for row in rows])


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def measured(request):
    model, texts = tiny_model(tied=request.param, dtype=torch.float32), completions()
    squares = mean_squares(model, [PROMPT, [4, 9]], [texts[:4], texts[4:8]], PAST_REWARDS, **SETTINGS)
    return model, texts, squares, prompt_scores(model, PROMPT, texts, REWARDS, squares, **SETTINGS)


@pytest.mark.parametrize("metric", ["plain", "adam"])
def test_norms_sums_and_mean_are_those_of_autograd(measured, metric):
    model, texts, squares, found = measured
    own = vectors(model, texts, squares if metric == "adam" else None).numpy()
    right, wrong = own[REWARDS == 1].sum(0), own[REWARDS == 0].sum(0)
    scores = found.metrics[metric]
    np.testing.assert_allclose(scores.norms, (own**2).sum(1), rtol=1e-4)
    scale = (own**2).sum()
    np.testing.assert_allclose(scores.products, [right @ right, right @ wrong, wrong @ wrong], atol=1e-5 * scale)
    mean = ((REWARDS - REWARDS.mean()) @ own) / (len(REWARDS) - 1)
    # Coordinates come in another order, so that what does not depend on it is compared.
    assert scores.mean @ scores.mean == pytest.approx(mean @ mean, rel=1e-4)
    assert scores.mean.sum() == pytest.approx(mean.sum(), rel=1e-3, abs=1e-4 * np.abs(mean).sum())


def test_mean_squares_are_those_of_a_loop_over_batches(measured):
    model, texts, squares, _ = measured
    scores = [loop(model, PROMPT, texts[:4]), loop(model, [4, 9], texts[4:8])]
    for place, parameter in enumerate(model.parameters()):
        expected = 0
        for batch in range(4):
            others = (PAST_REWARDS.sum(1) - PAST_REWARDS[:, batch]) / 3
            left = PAST_REWARDS[:, batch] - others
            gradient = sum(left[row] * scores[row][batch][place] for row in range(2)) / 2
            expected = expected + gradient**2 / 4
        scale = float(expected.max()) or 1.0
        torch.testing.assert_close(squares[parameter].double(), expected, rtol=1e-3, atol=1e-5 * scale)


def test_rewards_other_than_right_and_wrong_are_refused(measured):
    model, texts, squares, _ = measured
    with pytest.raises(ValueError, match=r"rewards must be 0 or 1 .* got 0\.5"):
        prompt_scores(model, PROMPT, texts, np.full(9, 0.5), squares, **SETTINGS)
    with pytest.raises(ValueError, match="history: all 2 completions of each of 1 prompts have one reward"):
        mean_squares(model, [PROMPT], [texts[:2]], np.ones((1, 2)), **SETTINGS)


def test_a_sketch_keeps_inner_products_and_short_vectors_whole(monkeypatch):
    generator = torch.Generator().manual_seed(5)
    a = torch.randn(40_000, generator=generator)
    b = 0.5 * a + torch.randn(40_000, generator=generator)

    def sketched(vector):
        sketch = Sketch(len(vector))
        for part in vector.split(15_000):
            sketch.add(part)
        return sketch.numpy().astype(float)

    assert np.array_equal(sketched(a), a.double().numpy())
    monkeypatch.setattr(module, "SKETCH", 2**12)
    short = sketched(a), sketched(b)
    assert len(short[0]) == 2**12
    bound = float(a.norm() * b.norm()) / 2**6  # the standard deviation, and more
    assert abs(short[0] @ short[1] - float(a @ b)) < 5 * bound
    assert abs(short[0] @ short[1]) > 10 * bound
