"""The law's inputs are unbiased: exact expectations over all draws of a small softmax policy."""

from itertools import product

import numpy as np
import pytest

from llm_experiments.law.moments import noise_at_value, squared_gradient

PI = np.array([0.5, 0.2, 0.3])
REWARD = np.array([1.0, 1.0, 0.0])
SCORES = np.array([[1.0, 0.0, 0.4], [-0.3, 2.0, 0.0]])
SCORES = np.column_stack([SCORES.T[:2].T, -(SCORES.T[:2].T @ PI[:2]) / PI[2]]).T  # (3, 2): E s = 0, as scores have
N = 5


def expectation(estimate):
    total = 0.0
    for draw in product(range(3), repeat=N):
        total += PI[list(draw)].prod() * estimate(list(draw))
    return total


def by_class(draw):
    rewards, scores = REWARD[draw], SCORES[draw]
    right, wrong = scores[rewards == 1].sum(0), scores[rewards == 0].sum(0)
    return rewards, (scores**2).sum(1), np.array([right @ right, right @ wrong, wrong @ wrong])


def test_the_squared_gradient_is_unbiased():
    gradient = (PI * REWARD) @ SCORES
    assert expectation(lambda draw: squared_gradient(*by_class(draw))) == pytest.approx(gradient @ gradient, rel=1e-9)
    # With each completion's own square left in it is far too large, so that the test can fail.
    naive = expectation(lambda draw: squared_gradient(by_class(draw)[0], np.zeros(N), by_class(draw)[2]))
    assert naive > 1.5 * (gradient @ gradient)


def test_the_noise_at_the_value_is_unbiased():
    value, weight = PI @ REWARD, (SCORES**2).sum(1)
    expected = PI @ (weight * (REWARD - value) ** 2)
    assert expectation(lambda draw: noise_at_value(*by_class(draw)[:2])) == pytest.approx(expected, rel=1e-9)
    own = expectation(lambda draw: float(np.mean(by_class(draw)[1] * (REWARD[draw] - REWARD[draw].mean()) ** 2)))
    assert own < 0.95 * expected  # a mean that holds the reward itself
