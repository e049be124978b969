"""Expected weights and weighted residuals against a slow reference, completion by completion."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator
from kaestat.core.weighted_noise import PRIOR, SUMS, evenness, moments, of_population, weighted_noise
from kaestat.sampling import PromptSampler, expected_noise

ROWS = st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(-2.0, 3.0)), min_size=1, max_size=6)


def means_of(rows):
    """Of W, W^2, W Z and W Z^2 over (W, Z)."""
    return np.mean([(w, w**2, w * z, w * z**2) for w, z in rows], axis=0)


def slowly(own, everybody, of_prior, served):
    """The posterior mean of each function of a completion, the prior's completions counted one by one."""
    prior = of_prior + PRIOR

    def mean(function):
        told = sum(function(w, z) for w, z in own) + prior * np.mean([function(w, z) for w, z in everybody])
        return told / (len(own) + prior)

    weight = mean(lambda w, z: w)
    best = mean(lambda w, z: w * z) / weight if weight > 0 else 0.0
    return [weight, *(mean(lambda w, z, b=b: w * (z - b) ** 2) for b in (best, served))]


@given(ROWS, ROWS, st.floats(0.0, 20.0), st.floats(-2.0, 3.0))
def test_it_is_the_mean_over_own_completions_and_the_priors(own, everybody, of_prior, served):
    found = weighted_noise(np.array([len(own)]), means_of(own)[None], means_of(everybody), of_prior, np.array([served]))
    np.testing.assert_allclose(found[0], slowly(own, everybody, of_prior, served), rtol=1e-7, atol=1e-9)


@given(ROWS)
def test_of_a_prompt_of_which_nothing_is_known_it_is_that_of_the_population(everybody):
    means = means_of(everybody)
    weight, _, carried, _ = means
    best = carried / weight if weight > 0 else 0.0
    found = weighted_noise(np.zeros(1), np.zeros((1, 4)), means, 3.0, np.array([best]))
    np.testing.assert_allclose(found[0], of_population(means), atol=1e-12)
    np.testing.assert_allclose(
        weighted_noise(np.full(1, 1e9), np.ones((1, 4)), means, math.inf, np.array([best])), found, atol=1e-12
    )


def test_evenness_is_kishs():
    assert evenness(means_of([(3.0, 0.0), (3.0, 1.0)])) == 1.0
    assert evenness(means_of([(1.0, 0.0), (3.0, 1.0)])) == pytest.approx(4 / 5)
    assert evenness((0.0, 0.0, 0.0, 0.0)) == 1.0


def test_moments_are_means_and_nothing_without_completions():
    sums = dict(zip(SUMS, np.array([[2.0, 0.0], [4.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), strict=True))
    assert moments(np.array([2.0, 0.0]), sums).tolist() == [[1.0, 2.0, 0.5, 0.5], [0.0] * 4]


def run(weights, method="kae_eb", **params):
    """A sampler's plan after six steps of a population of forty prompts with the weights that a function gives."""
    rng, ids = np.random.default_rng(4), list(range(40))
    value = rng.random(40)
    estimator = AdvantageEstimator(method, **params)
    sampler = PromptSampler(ids, 20, predictor=estimator)
    for step in range(6):
        rows = np.repeat(rng.choice(40, 10, replace=False), 2)
        reward = (rng.random(20) < value[rows]).astype(float)
        given = weights(rows, reward)
        estimator.step(rows, reward, step, weights=given)
        sampler.observe(rows, reward, step)
    return sampler.draw(9).plan


METHODS = [("kae_eb", {"bandwidth": 10}), ("kae", {"bandwidth": 10}), ("kae_eb", {})]


@pytest.mark.parametrize(("method", "params"), METHODS)
@pytest.mark.parametrize("group_size", [1, 4])
def test_constant_weights_are_none(method, params, group_size):
    plain = run(lambda rows, reward: None, method, **params)
    heavy = run(lambda rows, reward: np.full(len(rows), 3.0), method, **params)
    expected, found = (expected_noise(plan.prediction, group_size=group_size) for plan in (plain, heavy))
    np.testing.assert_allclose(found, 3.0 * expected, rtol=1e-9)
    np.testing.assert_allclose(heavy.expected, plain.expected, rtol=1e-9)
