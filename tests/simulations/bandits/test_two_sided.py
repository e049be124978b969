"""Values from both sides of a completion's version, against a loop over completions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kaestat import AdvantageEstimator, make_baseline
from simulations.bandits.stale_policy import ARRIVALS, Sampled, delays, policy_path
from simulations.bandits.two_sided import two_sided_values

SHAPE = (12, 3, 4)
KAE = make_baseline("kae", bandwidth=5)


def sampled(arrival: str, staleness: int) -> Sampled:
    rng = np.random.default_rng(7)
    policy = policy_path(rng, SHAPE[0], SHAPE[1], 0.3)
    return Sampled.of(policy, rng.random(SHAPE), delays(rng, arrival, staleness, SHAPE))


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_every_other_completion_that_has_arrived_counts_by_the_distance_of_versions(arrival):
    drawn = sampled(arrival, 2)
    found = two_sided_values(KAE, drawn)
    version = np.broadcast_to(np.arange(SHAPE[0])[:, None], (SHAPE[0], SHAPE[2]))
    for step, prompt, place in np.ndindex(SHAPE):
        used = drawn.used[step, prompt, place]
        if used >= SHAPE[0]:
            assert np.isnan(found[step, prompt, place])
            continue
        there = drawn.used[:, prompt] <= used
        there[step, place] = False
        weight = there * np.maximum(1 - np.abs(version - step) / 5, 0)
        if weight.sum() > 0:
            expected = (weight * drawn.reward[:, prompt]).sum() / weight.sum()
            assert found[step, prompt, place] == pytest.approx(expected)


def test_without_lateness_it_is_what_the_estimator_gives():
    drawn, estimator = sampled("together", 0), AdvantageEstimator("kae", bandwidth=5)
    prompts = np.repeat(np.arange(SHAPE[1]), SHAPE[2])
    for step, found in enumerate(two_sided_values(KAE, drawn)):
        estimator.step(prompts.tolist(), drawn.reward[step].ravel(), step)
        np.testing.assert_allclose(found.ravel(), estimator.values)


def test_a_completions_own_reward_is_never_in_its_value():
    drawn = sampled("singly", 3)
    step, prompt, place = 6, 1, 2
    other = drawn.answer.copy()
    other[step, prompt, place] += 1  # the neighbour of a right answer is wrong
    changed = replace(drawn, answer=other % drawn.policy.shape[-1])
    assert changed.reward[step, prompt, place] != drawn.reward[step, prompt, place]
    before, after = (two_sided_values(KAE, each) for each in (drawn, changed))
    np.testing.assert_allclose(before[step, prompt, place], after[step, prompt, place], rtol=1e-12)
    assert not np.allclose(before[step + 1 :], after[step + 1 :], equal_nan=True)
