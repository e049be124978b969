"""How noisy completions will be, as far as a history tells."""

import math
from dataclasses import replace

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.estimator.prediction import Population, Prediction
from kaestat.sampling import expected_noise

ONES = (1.0, 1.0, 1.0)  # rewards are 0 or 1
POPULATION = Population(n_prompts=50, mean=0.4, spread=0.05, noise=0.19, drift=0.001, sums=ONES)


def prediction(value, completions, *, lag=1.0, shrunk=False, population=POPULATION) -> Prediction:
    arrays = (np.array([number]) for number in (value, completions, 0.1, lag))
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


def test_one_completion_makes_no_prompt_certain_even_if_the_method_did_not_shrink_it():
    """As if one more completion of the population had been seen: p is (1 + .4) / 2, and .4 / 2."""
    population = replace(POPULATION, drift=0.0)
    for value, p in ((1.0, 0.7), (0.0, 0.2), (0.5, 0.5)):
        found = expected_noise(prediction(value, 1.0, shrunk=True, population=population))
        np.testing.assert_allclose(found, [p * (1 - p)])
    assert expected_noise(prediction(1.0, 100.0, shrunk=True, population=population))[0] < 0.01
    found = expected_noise(prediction(0.9, 20.0, shrunk=True, population=population))
    np.testing.assert_allclose(found, [0.9 * 0.1])  # a posterior mean is not drawn twice


@pytest.mark.parametrize("shrunk", [False, True])
def test_where_all_prompts_were_right_noise_is_small_and_positive_and_falls_with_what_is_known(shrunk):
    """Half a prompt of 50 beside was not right: mu is 50.5 / 51, and n completions weigh n beside one of mu's."""
    population = Population(n_prompts=50, mean=1.0, spread=0.0, noise=0.0, drift=0.0, sums=ONES)
    noise = [
        expected_noise(prediction(1.0, completions, shrunk=shrunk, population=population))[0]
        for completions in (0.0, 1.0, 20.0)
    ]
    p = [1 - 0.5 / 51 / (n + 1) if shrunk and n else 50.5 / 51 for n in (0, 1, 20)]
    np.testing.assert_allclose(noise, [each * (1 - each) for each in p])


def test_rewards_that_are_not_binary_have_a_variance_of_their_own():
    population = replace(POPULATION, sums=(2.0, 1.0, 0.5), drift=0.0)
    found = expected_noise(prediction(0.4, 5.0, population=population))
    of_prior = 0.19 / 0.05
    variance = 0.1 + of_prior / (5 + of_prior) * 0.09
    np.testing.assert_allclose(found, [variance + variance / (5 + of_prior)])


def test_an_unknown_prompt_has_the_noise_of_the_population_and_without_one_all_are_alike():
    np.testing.assert_allclose(expected_noise(prediction(0.4, 0.0, lag=math.inf)), [0.4 * 0.6])
    nothing = AdvantageEstimator("kae").predict(["a", "b"], 0)
    assert expected_noise(nothing).tolist() == [1.0, 1.0]
