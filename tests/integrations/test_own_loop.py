"""A training loop of one's own with weights in Adam's units, after steps on rewards that are all alike."""

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator
from kaestat.integrations.adam_units import mean_squares
from kaestat.integrations.gradient_norms import gradient_norms, usable_weights
from kaestat.sampling import PromptSampler
from tests.integrations.test_gradient_norms import VOCABULARY, qwen2

# Steps on equal rewards, the reward, whether prompts are drawn, completions of a prompt
ALIKE = {
    "reward 0": (1, 0.0, True, 1),
    "not drawn": (2, 1.0, False, 1),
    "groups": (3, 1.0, True, 2),
}
PROMPTS = [f"q{k}" for k in range(12)]
BUDGET = 8


def trained(steps, constant, drawn, group_size):
    """Weights and advantages of each step: so many on equal rewards, then three on both rewards."""
    torch.manual_seed(0)
    model, rng = qwen2(), np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    estimator = AdvantageEstimator("kae_eb")
    sampler = PromptSampler(PROMPTS, BUDGET, predictor=estimator, group_size=None if group_size == 1 else group_size)
    weights, advantages = [], []
    for step in range(steps + 3):
        draw = sampler.draw(step) if drawn else None
        rows = draw.rows() if drawn else [PROMPTS[(step * BUDGET + k) % len(PROMPTS)] for k in range(BUDGET)]
        texts = torch.tensor(rng.integers(4, VOCABULARY, (BUDGET, 6)))
        rewards = np.full(BUDGET, constant) if step < steps else np.arange(BUDGET) % 2.0

        def scores(texts=texts):
            own = model(input_ids=texts).logits[:, :-1].log_softmax(-1)
            return own.gather(2, texts[:, 1:, None]).sum((1, 2))

        weights.append(usable_weights(gradient_norms(model, scores, mean_squares(optimizer))).double().numpy())
        found = estimator.step(rows, rewards, step, weights=weights[-1])
        advantages.append(found * draw.correction_of(rows) if drawn else found)
        if drawn:
            sampler.observe(rows, rewards, step)
        optimizer.zero_grad()
        (-(torch.tensor(advantages[-1]) * scores()).mean()).backward()
        optimizer.step()
    return weights, advantages


@pytest.mark.parametrize("case", ALIKE)
def test_equal_rewards_leave_weights_and_values_what_they_should_be(case):
    steps = ALIKE[case][0]
    weights, advantages = trained(*ALIKE[case])
    for each in weights:
        assert np.isfinite(each).all() and (each > 0).all()
        np.testing.assert_allclose(each.mean(), 1.0, rtol=1e-5)
    for each in advantages[:steps]:  # the value is the reward, and not 0
        np.testing.assert_allclose(each, 0.0, atol=1e-6)
    assert all(np.abs(each).max() > 0.1 for each in advantages[steps:])


@pytest.mark.parametrize("norms", [[0.0, 0.0, 0.0], [1.0, torch.nan, 1.0], [1.0, torch.inf, 0.0], [3e38, 3e38, 3e38]])
@pytest.mark.parametrize("over_mean", [True, False])
def test_norms_that_say_nothing_give_weights_of_one_and_a_warning(norms, over_mean):
    with pytest.warns(UserWarning, match="mean of 3 completions' weights is .*as without weights"):
        assert usable_weights(torch.tensor(norms), over_mean=over_mean).tolist() == [1.0, 1.0, 1.0]


def test_usable_norms_are_divided_by_their_mean_or_left():
    norms = torch.tensor([0.0, 1.0, 5.0])
    assert usable_weights(norms).tolist() == [0.0, 0.5, 2.5]
    assert usable_weights(norms, over_mean=False).tolist() == [0.0, 1.0, 5.0]
