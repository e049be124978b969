"""The expected gradient noise of a prompt's completions, estimated from its history."""

import numpy as np

from kaestat.core.weighted_noise import evenness, of_population
from kaestat.estimator.prediction import Prediction


def expected_noise(prediction: Prediction, *, group_size: int = 1) -> np.ndarray:
    """``E W (R - b)^2`` of a completion given the past: the reward's variance plus the error of its baseline.

    Without weights of completions W is 1. With the prediction V of n effective completions, the prompts' mean ``mu``
    and spread ``tau^2``, and the variance ``s^2`` of a reward within a prompt
    (`kaestat.estimator.prediction.Population`), the value has the posterior mean and variance

    ::

        p = (n V + m mu) / (n + m),    m = s^2 / tau^2,    u = p (1 - p) / (n + m + 1)

    for rewards 0 and 1 (exact for Beta-distributed values). For other rewards ``u = r / (n + m)``, with r the
    prompt's own reward variance, shrunk towards s^2 as p is towards mu. A method that shrinks has V for p and n for
    n + m. Its V is limited to the distance from mu that n equal completions could reach, with a prior worth at most one
    completion, so a value of 0 or 1 after a single completion does not count as certain. If all prompts were right (or
    wrong), the population counts half a prompt more that was not. After its last visit a value drifts with variance D
    per step. So after l steps p and u move by ``D l / (D l + tau^2)`` of the way to mu and tau^2.

    The expected variance of the reward is then ``p (1 - p) - u``, or r. A leave-one-out baseline from the history
    and the group's G - 1 others adds ``1 / (1 / u + (G - 1) / variance)``. With G = 1 and rewards 0 and 1 the sum is
    ``p (1 - p)``: the score of a prompt that was always right grows again with the time since its last visit.

    If the history has weights, `kaestat.core.weighted_noise` gives the prompt's expected weight ``M[W]`` and the noise
    about the weighted baseline, ``M[W (Z - b)^2]``; G reduces the baseline's part of it as above. ``M[W]`` times the
    unweighted noise uses the best estimate of the value, but ignores how weights go with residuals. The second estimate
    contains that, but from few completions. It counts the more, the more unequal the weights are:

    ::

        k M[W] E (R - b)^2 + (1 - k) M[W (Z - b)^2],    k = E[W]^2 / E[W^2] over all prompts

    Parameters
    ----------
    prediction : Prediction
    group_size : int
        G.

    Returns
    -------
    ndarray of float, shape (P,)
        All 1 while there are no data.
    """
    population, completions = prediction.population, prediction.effective_completions
    if population.n_prompts == 0:
        return np.ones(len(prediction.value))
    own_variance, lag, others = prediction.reward_variance, prediction.lag, group_size - 1
    spread, unknown, of_prior = population.spread, completions <= 0, population.of_prior
    together = np.where(unknown | (not prediction.shrunk), completions + of_prior, completions)
    mean = population.mean
    if population.binary and mean in (0.0, 1.0):  # nobody has failed yet, or succeeded, which makes nothing certain
        mean = (population.n_prompts * mean + 0.5) / (population.n_prompts + 1)
    away = 1 - np.divide(completions, together, out=np.zeros_like(together), where=~unknown)
    drift = population.drift * np.where(np.isfinite(lag), lag, 0.0)
    drifted = np.divide(drift, drift + spread, out=np.zeros_like(drift), where=drift > 0)
    value = prediction.value + away * (mean - prediction.value)
    if population.binary:
        if prediction.shrunk:
            own = np.divide(completions, completions + min(of_prior, 1.0), out=np.zeros_like(value), where=~unknown)
            value = np.clip(value, (1 - own) * mean, (1 - own) * mean + own)
        error = value * (1 - value) / (together + 1)
    else:
        error = own_variance + away * (population.noise - own_variance)
        error = np.divide(error, together, out=np.zeros_like(together), where=together > 0)
    error = error + drifted * (spread - error)
    if population.binary:
        value = value + drifted * (mean - value)
        reward_variance = np.clip(value * (1 - value) - error, 0.0, None)
    else:
        gone = 1 - (1 - away) * (1 - drifted)
        reward_variance = own_variance + gone * (population.noise - own_variance)
    both = reward_variance + others * error
    left = np.divide(reward_variance, both, out=np.zeros_like(both), where=both > 0) if others else 1.0
    plain = reward_variance + left * error
    if prediction.weighted is None:
        return plain
    weighted = prediction.weighted + drifted[:, None] * (of_population(population.means) - prediction.weighted)
    weight, least, served = weighted.T
    even = evenness(population.means)
    return even * weight * plain + (1 - even) * (least + left * (served - least))
