"""Scores of recent steps follow from the visits alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, AsynchronousEstimator, Groups, make_baseline
from kaestat.asynchronous.recent_scores import scores_before
from kaestat.baselines import learned_bandwidth
from tests.helpers.arrivals import run

IDS = np.repeat(np.arange(6), 4)


def rewards_of(seed: int, n_steps: int, binary: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    reward = rng.random((n_steps, 6, 4))
    return ((reward < rng.random((1, 6, 1))).astype(float) if binary else reward).reshape(n_steps, 24)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", ["kae", "kae_eb", "local_linear"])
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_sums_of_visits_give_the_scores_of_the_completions(name, binary, seed):
    strict, free = AdvantageEstimator(name, bandwidth="auto"), AsynchronousEstimator(name, bandwidth="auto")
    baseline, scores = strict.baseline, []
    for step, part in enumerate(run(seed, 8, binary=binary)):
        for estimator in (strict, free):
            estimator.step(part.ids, part.reward, step)
        groups = Groups(strict.record.groups.reward, mask=strict.record.groups.mask)
        scores.append(learned_bandwidth.scores(baseline, groups, strict.record.visits, step=step))
    found, expected = scores_before(baseline, free.history, 8, {}), baseline.selector.running.joined(scores)
    for part, numbers in expected.items():
        np.testing.assert_allclose(found[part], numbers, rtol=1e-9, atol=1e-9)


def test_joined_scores_are_discounted_by_the_returns_of_the_prompts_since():
    """Against the recursion of a run in order, one step at a time; the third step has no prompt with a past."""
    running = make_baseline("kae", bandwidth="auto").selector.running
    rng, scores, loss, number = np.random.default_rng(0), [], 0.0, 0.0
    for step, count, pace in ((3, 8.0, 1.0), (4, 6.0, 0.5), (9, 0.0, 1.0), (11, 4.0, 0.25)):
        of_step = rng.random(len(running.candidates)) * (count > 0)
        last = float(step) if count else -1.0
        scored = np.array([count, count / 2, float(step), last, 2.0 if count else -1.0])
        scores.append({"loss": of_step, "scored": scored, "pace": np.asarray(pace)})
    for step, kept in ((0, 1.0), (1, 0.7**0.5), (3, 0.7 ** (7 * 0.25))):
        loss, number = kept * loss + scores[step]["loss"], kept * number + scores[step]["scored"][0]
    found = running.joined(scores)
    np.testing.assert_allclose(found["loss"], loss, rtol=1e-12)
    np.testing.assert_allclose(found["scored"], [number, number / 2, -1, 11, 2], rtol=1e-12)
    fresh = running.joined([])
    assert all(np.array_equal(fresh[name], array) for name, array in running.initial_carry().items())
