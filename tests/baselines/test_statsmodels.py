"""statsmodels as a judge from outside: the same models there give the values of ours."""

import numpy as np
import pytest
from statsmodels.nonparametric.kernel_regression import KernelReg
from statsmodels.tsa.statespace.structural import UnobservedComponents

from kaestat import AdvantageEstimator

STEPS, PROMPTS = 30, 6


def gaussian(u):
    return np.sqrt(2 / np.pi) * np.exp(-(u**2) / 2)


@pytest.fixture(params=range(3))
def run(request):
    """Single rewards, (steps, prompts): of each prompt a random part of the steps; NaN where it was not visited."""
    rng = np.random.default_rng(request.param)
    rewards = (rng.random((STEPS, PROMPTS)) < rng.random(PROMPTS)).astype(float)
    rewards[rng.random(rewards.shape) < 0.3] = np.nan
    rewards[-2:] = [[0.0], [1.0]]
    return rewards


def values(run, method, **params):
    """The values of the prompts' only completions at the last step: those of their past."""
    estimator = AdvantageEstimator(method, **params)
    for step, rewards in enumerate(run):
        visited = np.flatnonzero(~np.isnan(rewards))
        estimator.step(visited.tolist(), rewards[visited], step)
    return estimator.values


def past(of_prompt):
    """Steps and rewards of one prompt's visits before the last step."""
    steps = np.flatnonzero(~np.isnan(of_prompt[:-1]))
    return steps, of_prompt[steps]


def test_kalman_is_the_local_level_model(run):
    drift, noise, mean, variance = 0.003, 0.2, 0.4, 0.1
    theirs = []
    for of_prompt in run.T:
        steps, _ = past(of_prompt)
        model = UnobservedComponents(of_prompt[steps[0] : -1], "local level")
        model.ssm.initialize_known(np.array([mean]), np.array([[variance]]))
        theirs.append(model.smooth([noise, drift]).forecast()[0])
    ours = values(
        run, "kalman", drift_variance=drift, reward_variance=noise, initial_mean=mean, initial_variance=variance
    )
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("method", "fit"), [("kae", "lc"), ("local_linear", "ll")])
def test_kernel_methods_are_the_local_fits_of_kernel_regression(run, method, fit):
    bandwidth = 6.0
    theirs = []
    for of_prompt in run.T:
        steps, rewards = past(of_prompt)
        regression = KernelReg(rewards, steps.astype(float), "c", reg_type=fit, bw=[bandwidth])
        theirs.append(regression.fit(np.array([STEPS - 1.0]))[0][0])
    ours = values(run, method, kernel=gaussian, bandwidth=bandwidth)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)
