"""How noisy completions will be, as far as a history tells."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.estimator.prediction import Population, Prediction
from kaestat.sampling import expected_noise

POPULATION = Population(n_prompts=50, mean=0.4, spread=0.05, noise=0.19, drift=0.001, binary=True)


def prediction(value, completions, *, lag=1.0, shrunk=False, population=POPULATION) -> Prediction:
    arrays = (np.array([number]) for number in (value, 0.1, completions, 0.1, lag))
    return Prediction(["a"], *arrays, shrunk, population)


def slowly(value, completions, lag, group_size):
    """The formulas, a prompt at a time, from successes and failures."""
    mean, spread, drift = 0.4, 0.05, 0.001
    a, b = completions * value + mean * 0.19 / spread, completions * (1 - value) + (1 - mean) * 0.19 / spread
    p, u = a / (a + b), a * b / (a + b) ** 2 / (a + b + 1)  # of a Beta distribution
    gone = drift * lag / (drift * lag + spread)
    p, u = (1 - gone) * p + gone * mean, (1 - gone) * u + gone * spread
    variance = max(p * (1 - p) - u, 0)
    return variance + 1 / (1 / u + (group_size - 1) / variance) if variance else u if group_size == 1 else 0.0


@pytest.mark.parametrize("group_size", [1, 2, 8])
@pytest.mark.parametrize(("value", "completions", "lag"), [(0.5, 3.0, 1.0), (0.9, 40.0, 40.0), (0.0, 5.0, 300.0)])
def test_the_noise_is_that_of_the_posterior(value, completions, lag, group_size):
    found = expected_noise(prediction(value, completions, lag=lag), group_size=group_size)
    np.testing.assert_allclose(found, [slowly(value, completions, lag, group_size)])


def test_a_prompt_that_was_always_right_gets_more_again_the_longer_it_was_not_seen():
    noise = [expected_noise(prediction(1.0, 100.0, lag=lag))[0] for lag in (1.0, 10.0, 50.0, 1e9)]
    assert noise[0] < noise[1] < noise[2] and noise[0] < 0.05
    assert noise[-1] == pytest.approx(0.4 * 0.6, rel=1e-3)


def test_values_that_are_posterior_means_are_not_drawn_twice():
    population = replace(POPULATION, drift=0.0)
    found = expected_noise(prediction(0.9, 20.0, shrunk=True, population=population))
    np.testing.assert_allclose(found, [0.9 * 0.1])


def test_one_completion_makes_no_prompt_certain_even_if_the_method_did_not_shrink_it():
    """As if one more completion of the population had been seen: p is (1 + .4) / 2, and .4 / 2."""
    population = replace(POPULATION, drift=0.0)
    for value, p in ((1.0, 0.7), (0.0, 0.2), (0.5, 0.5)):
        found = expected_noise(prediction(value, 1.0, shrunk=True, population=population))
        np.testing.assert_allclose(found, [p * (1 - p)])
    assert expected_noise(prediction(1.0, 100.0, shrunk=True, population=population))[0] < 0.01


@pytest.mark.parametrize("shrunk", [False, True])
def test_where_all_prompts_were_right_noise_is_small_and_positive_and_falls_with_what_is_known(shrunk):
    """Half a prompt of 50 beside was not right: mu is 50.5 / 51, and n completions weigh n beside one of mu's."""
    population = Population(n_prompts=50, mean=1.0, spread=0.0, noise=0.0, drift=0.0, binary=True)
    noise = [
        expected_noise(prediction(1.0, completions, shrunk=shrunk, population=population))[0]
        for completions in (0.0, 1.0, 20.0)
    ]
    p = [1 - 0.5 / 51 / (n + 1) if shrunk and n else 50.5 / 51 for n in (0, 1, 20)]
    np.testing.assert_allclose(noise, [each * (1 - each) for each in p])


def test_an_unknown_prompt_has_the_noise_of_the_population():
    found = expected_noise(prediction(0.4, 0.0, lag=math.inf))
    np.testing.assert_allclose(found, [0.4 * 0.6])


def test_rewards_that_are_not_binary_have_a_variance_of_their_own():
    population = replace(POPULATION, binary=False, drift=0.0)
    found = expected_noise(prediction(0.4, 5.0, population=population))
    of_prior = 0.19 / 0.05
    variance = 0.1 + of_prior / (5 + of_prior) * 0.09
    np.testing.assert_allclose(found, [variance + variance / (5 + of_prior)])


def test_nothing_known_is_all_alike():
    nothing = AdvantageEstimator("kae").predict(["a", "b"], 0)
    assert expected_noise(nothing).tolist() == [1.0, 1.0]


def test_the_noise_of_beta_bernoulli_prompts_is_predicted_on_the_average():
    """20,000 prompts of Beta(1, 2) values, four completions each: E p (1 - p) + MSE is 1/6 less what is known.

    The mean predicted noise must agree with the realised (Z - V)^2 of a fresh completion within five standard errors,
    where V is the posterior mean that the formula stands for; taking no completion for known must not.
    """
    rng = np.random.default_rng(2)
    p = rng.beta(1, 2, 20_000)
    estimator = AdvantageEstimator("kae", bandwidth=math.inf)
    ids = np.arange(20_000)
    past = (rng.random((20_000, 4)) < p[:, None]).astype(float)
    estimator.step(np.repeat(ids, 4).tolist(), past.ravel(), 0)
    found = estimator.predict(ids.tolist(), 1)
    posterior = (past.sum(1) + 1) / 7
    realised = ((rng.random(20_000) < p) - posterior) ** 2
    error = realised.std() / math.sqrt(20_000)
    assert abs(expected_noise(found).mean() - realised.mean()) < 5 * error
    assert abs(found.population.mean * (1 - found.population.mean) - realised.mean()) > 10 * error
    for successes in range(5):  # and for prompts of so many successes
        here = past.sum(1) == successes
        error = realised[here].std() / math.sqrt(here.sum())
        assert abs(expected_noise(found)[here].mean() - realised[here].mean()) < 5 * error
