"""What a warm start is worth: on a public run, and where prompts come back once an epoch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from kaestat import AdvantageEstimator, Prior

REAL = Path(os.environ.get("KAESTAT_DATA", "")) / "acc_step_500_dev.json"
N_VISITS, GROUP = 44, 8
BEST = {"kernel": "exponential", "bandwidth": 12}


def risk_of_each(successes: np.ndarray, *, warm: bool, seed: int, **params) -> np.ndarray:
    """Unbiased squared error of `kae_eb` for each prompt and visit after the first, shape (P, V - 1).

    Each visit has one completion, drawn from the group of eight, and its value is held against the mean of the other
    seven. At the first visit there is one as well, or all eight as a prior.
    """
    rng = np.random.default_rng(seed)
    prompts = np.arange(len(successes)).tolist()
    estimator = AdvantageEstimator("kae_eb", **params)
    errors = []
    for visit, k in enumerate(successes.T):
        reward = (rng.random(len(k)) < k / GROUP).astype(float)
        if visit == 0 and warm:
            estimator.add_prior(Prior.of_rates(prompts, k / GROUP, np.full(len(k), GROUP), step=0))
            continue
        estimator.step(prompts, reward, visit)
        mean = (k - reward) / (GROUP - 1)
        errors.append((mean - estimator.values) ** 2 - mean * (1 - mean) / (GROUP - 2))
    return np.array(errors[-(N_VISITS - 1) :]).T


def mean_and_se(of_prompts: np.ndarray) -> tuple[float, float]:
    return float(of_prompts.mean()), float(of_prompts.std(ddof=1) / np.sqrt(len(of_prompts)))


@pytest.mark.skipif(not REAL.is_file(), reason="KAESTAT_DATA does not name a folder with acc_step_500_dev.json")
def test_eight_samples_at_the_first_visit_remove_the_weak_spot_on_the_real_run():
    """Value MSE .0073 over all visits, and .0106 in place of .037 over visits 1 to 5, were found on all 1,209 prompts;
    the 629 of the public half must give that within three standard errors over prompts."""
    content = json.loads(REAL.read_text())
    successes = np.array([[round(GROUP * rate) for rate in rates[:N_VISITS]] for rates in content.values()])
    warm, cold = (
        np.mean([risk_of_each(successes, warm=warm, seed=seed, **BEST) for seed in range(3)], axis=0)
        for warm in (True, False)
    )
    for found, expected in (
        (warm.mean(axis=1), 0.0073),
        (warm[:, :5].mean(axis=1), 0.0106),
        (cold[:, :5].mean(axis=1), 0.0374),
    ):
        mean, error = mean_and_se(found)
        assert error < 0.05 * 0.0374
        assert abs(mean - expected) < 3 * error
    gain, error = mean_and_se(cold.mean(axis=1) - warm.mean(axis=1))
    assert gain > 5 * error


def simulated(rng: np.random.Generator, n_epochs: int, n_prompts: int) -> np.ndarray:
    """Values of each epoch and prompt: logits that walk, with a common drift."""
    logit = rng.normal(-0.5, 1.8, n_prompts) + np.cumsum(rng.normal(0.05, 0.2, (n_epochs, n_prompts)), axis=0)
    return 1 / (1 + np.exp(-logit))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kae", "kae_eb"])
@pytest.mark.parametrize("count", [8, 256])
def test_a_learned_bandwidth_is_not_thrown_off_by_a_prior(method, count):
    """Prompts in turns, 10 steps an epoch: in the first epoch priors lie 1 to 10 steps back, later visits always 10.

    With a prior the squared error must be lower in every epoch by three standard errors (over replicates), whatever its
    count, and in the first by far.
    """
    n_epochs, turns, n_prompts = 8, 10, 200
    errors = np.zeros((5, 2, n_epochs, n_prompts))
    for seed, replicate in enumerate(errors):
        rng = np.random.default_rng([seed, count])
        value = simulated(rng, n_epochs, n_prompts)
        reward = (rng.random(value.shape) < value).astype(float)
        prompts = np.arange(n_prompts)
        prior = Prior.of_rates(prompts, rng.binomial(count, value[0]) / count, np.full(n_prompts, count))
        for estimator, error in zip(
            (AdvantageEstimator(method), AdvantageEstimator(method, prior=prior)), replicate, strict=True
        ):
            for step in range(n_epochs * turns):
                epoch, here = step // turns, prompts[step % turns :: turns]
                estimator.step(here, reward[epoch, here], step)
                error[epoch, here] = (estimator.values - value[epoch, here]) ** 2
    cold, warm = errors.mean(axis=(0, 3))
    gain = np.diff(errors.mean(axis=3), axis=1)[:, 0]
    error = gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
    assert (warm + 3 * error < cold).all()
    assert warm[0] < 0.3 * cold[0]
