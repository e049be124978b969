"""What is learned from the visits at hand is what a run learned that had no others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, make_baseline
from kaestat.estimator.steps.replayed_scores import ROUNDS, replayed_scores


def rewards_of(seed: int, n_steps: int, binary: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    reward = rng.random((n_steps, 6, 4))
    return (reward < rng.random((1, 6, 1))).astype(float) if binary else reward


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", ["kae", "kae_eb", "local_linear"])
@given(seed=st.integers(0, 2**32 - 1))
def test_prompts_that_come_together_are_scored_as_along_their_run(name, binary, seed):
    baseline = make_baseline(name, bandwidth="auto")
    estimator, ids = AdvantageEstimator(baseline), np.repeat(np.arange(6), 4)
    for step, reward in enumerate(rewards_of(seed, ROUNDS, binary)):
        estimator.step(ids, reward.reshape(-1), 3 * step)
    now = 3 * ROUNDS
    found = replayed_scores(baseline, estimator.history.visits(list(range(6)), now), now, range(6))
    for part, numbers in estimator.held.state.carry.items():
        np.testing.assert_allclose(found[part], numbers, rtol=1e-9, atol=1e-9)


def test_other_baselines_have_nothing_to_learn():
    estimator = AdvantageEstimator("kae", bandwidth=5)
    estimator.step(["a", "a"], [1.0, 0.0], 0)
    visits = estimator.history.visits(["a"], 1)
    assert replayed_scores(estimator.baseline, visits, 1, ["a"]) is None
    assert replayed_scores(make_baseline("kalman"), visits, 1, ["a"]) is None


def test_prompts_with_one_visit_teach_nothing_yet():
    estimator = AdvantageEstimator("kae")
    estimator.step(["a", "a"], [1.0, 0.0], 0)
    found = replayed_scores(estimator.baseline, estimator.history.visits(["a"], 1), 1, ["a"])
    fresh = estimator.baseline.initial_carry()
    assert all(np.array_equal(found[name], fresh[name]) for name in fresh)
