"""Objectives: slopes, the gradient that they have in a bandit by enumeration, and rates that are of the past alone."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from kaestat import AdvantageEstimator, AsynchronousEstimator
from kaestat.estimator.objective import objective_slope

F = {
    "log": np.log,
    "pass@1": lambda p: p,
    "pass@2": lambda p: 1 - (1 - p) ** 2,
    "pass@16": lambda p: 1 - (1 - p) ** 16,
    "arcsin": lambda p: 2 * np.arcsin(np.sqrt(p)),
}
P = {"x": 0.3, "y": 0.8}
METHODS = ("kae:bandwidth=5", "kae_eb:bandwidth=5", "kalman", "local_linear:bandwidth=5", "bayes_filter")


@pytest.mark.parametrize("objective", F)
def test_a_slope_is_the_derivative_of_the_objective(objective):
    rate, h = np.linspace(0.02, 0.98, 49)[:, None], 1e-6
    derivative = (F[objective](rate + h) - F[objective](rate - h)) / (2 * h)
    np.testing.assert_allclose(objective_slope(objective)(rate), derivative, rtol=1e-6, atol=1e-9)


def test_the_slope_of_bnpo_is_one_over_the_density_of_the_moments_of_the_rates():
    rate = np.array([0.1, 0.4, 0.55, 0.9])[:, None]
    c = rate.mean() * (1 - rate.mean()) / rate.var(ddof=1) - 1
    density = stats.beta(1 + c * rate.mean() / 3, 1 + c * (1 - rate.mean()) / 3).pdf(rate)
    np.testing.assert_allclose(objective_slope("bnpo")(rate), 1 / density, rtol=1e-9)


def rate_of_the_past(estimator, step):
    """V of each prompt by hand, from what the estimator predicts of them."""
    predicted = estimator.predict(list(P), step)
    n, v = predicted.effective_completions, np.clip(predicted.value, 0, 1)
    mean = (sum(v[k] for k in range(len(P)) if n[k] > 0) + 0.5) / (sum(n > 0) + 1)
    return (n * v + mean) / (n + 1)


def runs_of_a_bandit():
    """Every outcome of three completions before and three now of two prompts, with its probability."""
    past_ids, now_ids = ["x", "x", "y"], ["x", "x", "y"]
    for outcome in product([0.0, 1.0], repeat=6):
        probability = np.prod([P[k] if z else 1 - P[k] for k, z in zip(past_ids + now_ids, outcome, strict=True)])
        yield probability, (past_ids, outcome[:3]), (now_ids, outcome[3:])


def mean_update(make, slope_of=None):
    """Expected update of the logit of x, and what it is for a slope that is told from the past, by enumeration."""
    update = promised = 0.0
    for probability, past, (ids, rewards) in runs_of_a_bandit():
        estimator = make()
        estimator.step(*past, 0)
        if slope_of is not None:
            slope = slope_of(rate_of_the_past(estimator, 1)[:, None])[0, 0]
            promised += probability * slope * P["x"] * (1 - P["x"])
        advantages = estimator.step(ids, rewards, 1)
        scores = np.array(rewards[:2]) - P["x"]  # of the logit: 1 - p after a success, -p after a failure
        update += probability * np.mean(advantages[:2] * scores)
    return update, promised


@pytest.mark.parametrize(
    ("method", "objective"),
    [
        (method, ("log", "pass@8", "arcsin", "bnpo")[(k + more) % 4])
        for k, method in enumerate(METHODS)
        for more in (0, 1)
    ],
)
def test_the_mean_update_is_the_mean_slope_times_the_gradient_of_the_success_rate(method, objective):
    update, promised = mean_update(
        lambda: AdvantageEstimator(method, scale="none", objective=objective), objective_slope(objective)
    )
    assert update == pytest.approx(promised, rel=1e-10)


@pytest.mark.parametrize(
    ("method", "kind"),
    [*((method, AdvantageEstimator) for method in METHODS), ("kae_eb:bandwidth=5", AsynchronousEstimator)],
)
def test_advantages_are_those_of_the_mean_times_the_slope_at_the_rate_of_the_past_then_scaled(method, kind):
    plain, weighed = kind(method, scale="none"), kind(method, scale="batch_std", objective="log")
    rng, ids = np.random.default_rng(0), ["x"] * 4 + ["y"] * 4
    for step in range(5):
        rewards = (rng.random(8) < 0.4).astype(float)
        slope = 1 / rate_of_the_past(weighed, step)
        found, expected = weighed.step(ids, rewards, step), plain.step(ids, rewards, step) * np.repeat(slope, 4)
        expected = (expected - expected.mean()) / np.sqrt(expected.var(ddof=1) + 1e-8)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        np.testing.assert_array_equal(weighed.values, plain.values)


@pytest.mark.parametrize(
    ("method", "objective", "error", "word"),
    [
        ("kae", "pass@0", ValueError, "choose one of mean, log, pass@K"),
        ("kae", 8, TypeError, "objective must be a name"),
        ("grpo", "log", ValueError, "maxrl, bnpo, grpo, grpo_passk"),
    ],
)
def test_objectives_that_cannot_be_are_refused(method, objective, error, word):
    with pytest.raises(error, match=word):
        AdvantageEstimator(method, objective=objective)


def test_rewards_that_are_no_successes_are_refused_and_nothing_is_recorded():
    estimator = AdvantageEstimator("kae", objective="log")
    with pytest.raises(ValueError, match="rewards: an objective other than the mean"):
        estimator.step(["x", "x"], [-1.0, 1.0], 0)
    assert estimator.last_step == -1
    assert estimator.step(["x", "x"], [1.0, 9.0], 0, mask=[True, False])[1] == 0.0
