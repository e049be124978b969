"""What a sampler makes of its estimator's prior before the first step."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, Prior
from kaestat.sampling import POLICIES, PromptSampler

IDS = ["hard", "even", "easy", "new"]
PRIOR = {"hard": (0.0, 16), "even": (0.5, 16), "easy": (1.0, 16), "elsewhere": (0.5, 16)}


def sampler(policy: str = "neyman", **options) -> PromptSampler:
    return PromptSampler(IDS, 16, policy=policy, predictor=AdvantageEstimator("kalman", **options))


def test_the_first_draw_goes_by_the_prior():
    warm, cold = sampler(prior=PRIOR).draw(0), sampler().draw(0)

    assert np.ptp(cold.expected) == pytest.approx(0.0)
    expected = dict(zip(warm.prompt_ids, warm.expected.tolist(), strict=True))
    assert expected["even"] > 1.5 * max(expected["hard"], expected["easy"])
    assert warm.plan.prediction.lag.tolist() == [1.0, 1.0, 1.0, np.inf]
    assert warm.plan.prediction.population.n_prompts == 4


@pytest.mark.parametrize("step", [-1, 3])
@pytest.mark.parametrize("policy", POLICIES)
def test_predictions_are_those_of_the_visit(policy, step):
    """As after a step at which every prompt was seen with these rewards."""
    rewards = {
        key: [1.0] * round(mean * count) + [0.0] * round(count - mean * count) for key, (mean, count) in PRIOR.items()
    }
    del rewards["elsewhere"]
    warm, visited = sampler(policy, prior=Prior.of_rewards(rewards, step=step)), sampler(policy)
    visited.observe([key for key, of in rewards.items() for _ in of], [r for of in rewards.values() for r in of], 3)

    one, other = warm.draw(step + 1).plan, visited.draw(4).plan

    for name in ("value", "standard_error", "effective_completions", "reward_variance", "lag"):
        np.testing.assert_allclose(getattr(one.prediction, name), getattr(other.prediction, name), rtol=1e-12)
    np.testing.assert_allclose(one.expected, other.expected, rtol=1e-12)


def test_a_state_brings_the_prior_back():
    first = sampler(prior=PRIOR)
    again = sampler()
    again.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(again.draw(0).plan.prediction.value[:3], first.draw(0).plan.prediction.value[:3])
