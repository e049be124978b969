"""How noisy a prompt's completions will be for the gradient, as far as its history tells."""

from __future__ import annotations

import numpy as np

from kaestat.prediction import Prediction


def expected_noise(prediction: Prediction, *, group_size: int = 1) -> np.ndarray:
    """``E (R - b)^2`` of a completion, given the past: the reward's variance, and the error of its baseline.

    With the prediction V of variance ``s^2``, the prompts' mean ``mu`` and spread ``tau^2``
    (`kaestat.prediction.Population`), the posterior mean p of the value and its variance u are, for normal errors::

        lambda = s^2 / (s^2 + tau^2),    p = V + lambda (mu - V),    u = lambda tau^2

    (V and s^2 themselves where the method shrinks). After its last visit a value drifts on, by the variance D per step,
    and l steps later less of it is known: both move by ``D l / (D l + tau^2)`` of the way to ``mu`` and ``tau^2``. The
    reward's variance is expected to be ``p (1 - p) - u`` where rewards are 0 or 1, and the prompt's own, moved as far
    towards the population's, where they are not. A leave-one-out baseline of the history and of the group's G - 1
    others adds ``1 / (1 / u + (G - 1) / variance)``. With G = 1 and rewards 0 and 1 the sum is ``p (1 - p)``: a prompt
    that was always right gets more again the longer it was not seen.

    Parameters
    ----------
    prediction : Prediction
    group_size : int
        G.

    Returns
    -------
    ndarray of float, shape (P,)
        All 1 while nothing is known.
    """
    population = prediction.population
    if population.n_prompts == 0:
        return np.ones(len(prediction.value))
    spread = population.spread
    unknown = prediction.effective_completions <= 0
    lag = np.where(np.isfinite(prediction.lag), prediction.lag, 0.0)
    error = np.where(unknown, spread, prediction.standard_error**2)
    shrinkage = unknown * 1.0 if prediction.shrunk else np.where(unknown, 1.0, _share(error, spread))
    value = prediction.value + shrinkage * (population.mean - prediction.value)
    error = np.where(unknown, spread, error if prediction.shrunk else shrinkage * spread)
    drifted = _share(population.drift * lag, spread)
    value = value + drifted * (population.mean - value)
    error = error + drifted * (spread - error)
    if population.binary:
        value = np.clip(value, 0.0, 1.0)
        reward_variance = np.clip(value * (1 - value) - error, 0.0, None)
    else:
        away = 1 - (1 - shrinkage) * (1 - drifted)
        reward_variance = prediction.reward_variance + away * (population.noise - prediction.reward_variance)
    others = group_size - 1
    if others == 0:
        return reward_variance + error
    both = reward_variance + others * error
    return reward_variance + np.divide(error * reward_variance, both, out=np.zeros_like(both), where=both > 0)


def _share(variance: np.ndarray, spread: float) -> np.ndarray:
    """``variance / (variance + spread)``, 0 where both are 0."""
    both = variance + spread
    return np.divide(variance, both, out=np.zeros_like(both), where=both > 0)
