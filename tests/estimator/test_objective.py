"""Objectives: slopes, the gradient that they have in a bandit by enumeration, and rates that are of the past alone."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from kaestat import AdvantageEstimator, AsynchronousEstimator, Prior
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


@pytest.mark.parametrize("method", METHODS)
def test_advantages_are_those_of_the_mean_times_the_slope_at_the_rate_of_the_past(method):
    plain, weighed = (AdvantageEstimator(method, objective=objective) for objective in ("mean", "log"))
    rng = np.random.default_rng(0)
    for step in range(5):
        rewards = (rng.random(8) < 0.4).astype(float)
        slope = 1 / rate_of_the_past(weighed, step)
        ids = ["x"] * 4 + ["y"] * 4
        found, expected = weighed.step(ids, rewards, step), plain.step(ids, rewards, step)
        np.testing.assert_allclose(found, expected * np.repeat(slope, 4), rtol=1e-12)
        np.testing.assert_array_equal(weighed.values, plain.values)


def test_weights_of_completions_change_the_baseline_and_not_the_rate():
    estimator = AdvantageEstimator("kae", bandwidth=5, objective="log")
    estimator.step(["x", "x"], [1.0, 0.0], 0, weights=[1.0, 9.0])
    advantages = estimator.step(["x", "x"], [1.0, 0.0], 1, weights=[1.0, 9.0])
    np.testing.assert_allclose(advantages * 0.5, np.array([1.0, 0.0]) - estimator.values, rtol=1e-12)


def test_the_scale_comes_after_the_slope():
    ids, rewards = ["x", "x", "y", "y"], [1.0, 0.0, 1.0, 1.0]
    found = []
    for scale in ("none", "batch_std"):
        estimator = AdvantageEstimator("kae", bandwidth=5, objective="log", scale=scale)
        estimator.step(ids, rewards, 0)
        found.append(estimator.step(ids, rewards, 1))
    plain, whitened = found
    np.testing.assert_allclose(whitened, (plain - plain.mean()) / np.sqrt(plain.var(ddof=1) + 1e-8), rtol=1e-9)


def test_completions_in_any_order_have_the_same_slopes():
    ids, rng = ["x", "x", "y", "y"], np.random.default_rng(1)
    kinds = AdvantageEstimator, AsynchronousEstimator
    strict, loose = (kind("kae", bandwidth=5, objective="pass@4") for kind in kinds)
    for step in range(4):
        rewards = (rng.random(4) < 0.5).astype(float)
        np.testing.assert_allclose(loose.step(ids, rewards, step), strict.step(ids, rewards, step), rtol=1e-12)


def test_an_estimator_from_a_file_goes_on_with_its_objective(tmp_path):
    estimator = AdvantageEstimator("kae", bandwidth=5, objective="pass@8")
    estimator.step(["x", "x"], [1.0, 0.0], 0)
    estimator.save(tmp_path / "estimator")
    loaded = AdvantageEstimator.load(tmp_path / "estimator")
    assert loaded.objective == "pass@8" and "objective='pass@8'" in repr(loaded)
    again = loaded.step(["x"], [1.0], 1)
    assert again == estimator.step(["x"], [1.0], 1)


@pytest.mark.parametrize("bad", ["pass@0", "pass@", "pass@2000000", "max", ""])
def test_unknown_objectives_are_refused(bad):
    with pytest.raises(ValueError, match=r"objective: unknown .* choose one of mean, log, pass@K, arcsin, bnpo"):
        AdvantageEstimator("kae", objective=bad)
    with pytest.raises(TypeError, match="objective must be a name, got int"):
        AdvantageEstimator("kae", objective=8)


def test_methods_without_a_past_are_told_of_the_published_forms():
    with pytest.raises(ValueError, match=r"objective: method 'grpo' keeps no history .* maxrl, bnpo, grpo, grpo_passk"):
        AdvantageEstimator("grpo", objective="log")
    assert AdvantageEstimator("grpo", objective="mean").objective == "mean"


def test_rewards_that_are_no_successes_are_refused_and_nothing_is_recorded():
    estimator = AdvantageEstimator("kae", objective="log")
    with pytest.raises(ValueError, match="rewards: an objective other than the mean"):
        estimator.step(["x", "x"], [-1.0, 1.0], 0)
    assert estimator.last_step == -1
    assert estimator.step(["x", "x"], [1.0, 9.0], 0, mask=[True, False])[1] == 0.0


@pytest.mark.parametrize("method", ["kae", "kae_eb"])
def test_bandwidths_that_reach_no_visit_do_not_pull_a_rate_to_0(method):
    """The part of a mixture of bandwidths that reaches nothing gave 0: rates were .05 to .06 too low here."""
    prior, rng = Prior.of_rates(["known"], [0.5], [20]), np.random.default_rng(0)
    estimators = [AdvantageEstimator(method, prior=prior, **objective) for objective in ({}, {"objective": "log"})]
    for step in range(30):
        ids, reward = ["known", "known", *np.repeat(rng.permutation(6)[:3], 2)], rng.random(8) < 0.5
        here = slice(2 * (step > 0), None)
        for estimator in estimators:
            estimator.step(ids[here], reward[here], step)
    value = estimators[0].predict(["known", 0], 230).value
    plain, sloped = (estimator.step(["known"] * 2 + [0] * 2, [1, 0, 1, 0], 230) for estimator in estimators)
    np.testing.assert_allclose((plain / sloped)[::2], value, atol=0.03)
