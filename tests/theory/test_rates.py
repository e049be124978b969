"""Closed forms against brute force: errors of linear smoothers, minimax weights, bandwidths, rates."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from kaestat.smoothing.kernels import KERNELS, Triangular
from kaestat.theory import (
    integer_bandwidth_error,
    linear_error,
    local_rate_slopes,
    minimax_weights,
    optimal_bandwidth,
    optimal_integer_bandwidth,
    worst_case_error,
)

quick = settings(derandomize=True, deadline=None, max_examples=50)


def test_linear_error_of_a_hand_computed_smoother():
    # 0.5 (Y_0 + Y_2): mean (0.6 + 0.2) / 2 against 0.6, variance (0.24 + 0.16) / 4.
    error = linear_error(np.array([0.5, 0.5]), np.array([0.6, 0.2]), np.array([0.24, 0.16]), target=0.6)
    assert error.bias == pytest.approx(-0.2)
    assert error.variance == pytest.approx(0.1)
    assert error.mse == pytest.approx(0.14)


def slow_worst_case_bias(weights: np.ndarray, lags: np.ndarray, lipschitz: float) -> float:
    """The largest bias as a linear programme over the values at the lags."""
    n = len(lags)
    rows, limits = [], []
    for j in range(n):
        for k in range(n):
            row = np.zeros(n)
            row[j] += 1
            row[k] -= 1
            rows.append(row)
            limits.append(lipschitz * abs(lags[j] - lags[k]))
    bounds = [(-lipschitz * lag, lipschitz * lag) for lag in lags]  # V(0) = 0
    return -linprog(-weights, A_ub=np.array(rows), b_ub=limits, bounds=bounds).fun


@given(seed=st.integers(0, 10_000), n=st.integers(1, 6), signed=st.booleans())
@quick
def test_worst_case_bias_is_the_maximum_over_the_lipschitz_class(seed, n, signed):
    rng = np.random.default_rng(seed)
    lags = rng.integers(0, 8, size=n).astype(float)
    weights = rng.normal(size=n) if signed else rng.random(n)
    weights = weights / weights.sum()
    expected = slow_worst_case_bias(weights, lags, 0.3)
    assert worst_case_error(weights, lags, 0.25, 0.3).bias == pytest.approx(expected, rel=1e-7, abs=1e-9)
    if not signed:
        assert expected == pytest.approx(0.3 * weights @ lags, rel=1e-7, abs=1e-9)


def worst_case_mse(weights, lags, noise, lipschitz) -> float:
    return float(worst_case_error(weights, lags, noise, lipschitz).mse)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 8))
@quick
def test_no_linear_smoother_beats_the_minimax_weights(seed, n):
    rng = np.random.default_rng(seed)
    lags, noise = rng.integers(0, 12, size=n).astype(float), rng.uniform(0.02, 0.5, size=n)
    lipschitz = float(rng.uniform(0.01, 0.3))
    best = minimax_weights(lags, noise, lipschitz)
    assert best.sum() == pytest.approx(1)
    assert (best >= 0).all()
    least = worst_case_mse(best, lags, noise, lipschitz)
    searched = minimize(
        lambda w: (lipschitz * w @ lags) ** 2 + noise @ w**2,
        np.full(n, 1 / n),
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert least <= searched.fun + 1e-12
    assert searched.fun == pytest.approx(least, rel=1e-5)
    for _ in range(20):  # signed weights as well: the problem is convex, so near ones suffice
        step = rng.normal(size=n)
        other = best + rng.choice([1e-1, 1e-3]) * (step - step.mean())
        assert worst_case_mse(other, lags, noise, lipschitz) >= least - 1e-14


def test_minimax_weights_without_drift_weigh_by_precision():
    noise = np.array([0.1, 0.2, 0.4])
    np.testing.assert_allclose(minimax_weights(np.arange(3.0), noise, 0.0), (1 / noise) / (1 / noise).sum())
    np.testing.assert_allclose(minimax_weights(np.zeros(4), 0.2, 0.5), 0.25)
    np.testing.assert_allclose(minimax_weights(np.array([[0.0, 1e9], [5.0, 5.0]]), 0.2, 0.5), [[1, 0], [0.5, 0.5]])


@pytest.mark.parametrize("oldest", [0.0, 1e3, 1e9, 1e15])
def test_minimax_weights_keep_their_digits_however_old_all_visits_are(oldest):
    lags, lipschitz = oldest + np.array([0.0, 1.0, 3.0, 8.0]), 0.25
    exact = [Fraction(lag) for lag in lags]
    bandwidths = (
        (1 / Fraction(lipschitz) ** 2 / 4 + sum(lag**2 for lag in exact[:n])) / sum(exact[:n])
        for n in range(1, 5)
        if sum(exact[:n]) > 0
    )
    bandwidth = min(bandwidths)
    triangle = [max(bandwidth - lag, 0) for lag in exact]
    np.testing.assert_allclose(
        minimax_weights(lags, 0.25, lipschitz), [float(side / sum(triangle)) for side in triangle], rtol=1e-12
    )


@pytest.mark.parametrize("m", [1, 2, 5, 19, 20, 100])
def test_integer_bandwidth_closed_form_equals_the_weights(m):
    lags = np.arange(float(m))
    weights = Triangular()(lags / m)
    weights = weights / weights.sum()
    exact = worst_case_error(weights, lags, 0.25, 0.01)
    closed = integer_bandwidth_error(m, lipschitz=0.01, noise_variance=0.25)
    assert closed.bias == pytest.approx(exact.bias, rel=1e-12, abs=1e-15)
    assert closed.variance == pytest.approx(exact.variance, rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 100, 1000, 3333])
@pytest.mark.parametrize("noise", [1e-4, 0.01, 0.25, 3.0])
def test_optimal_integer_bandwidth_equals_an_exhaustive_search(n, noise):
    candidates = np.arange(1, 20_000)
    mse = integer_bandwidth_error(candidates, lipschitz=1 / n, noise_variance=noise).mse
    assert optimal_integer_bandwidth(lipschitz=1 / n, noise_variance=noise) == candidates[np.argmin(mse)]


def test_local_slopes_of_the_exact_mse_approach_two_thirds_as_in_the_design():
    slopes = local_rate_slopes([10**3, 10**4, 10**5, 10**6, 10**7])
    np.testing.assert_allclose(slopes, [-0.66370, -0.66603, -0.66653, -0.66664], atol=5e-6, rtol=0)


@pytest.mark.parametrize("name", KERNELS)
def test_optimal_bandwidth_minimises_the_asymptotic_worst_case_mse(name):
    kernel = KERNELS[name]
    lipschitz, noise, per_step = 0.004, 0.2, 1.6
    h = optimal_bandwidth(name, lipschitz=lipschitz, noise_variance=noise, per_step=per_step)

    def mse(width):
        return (lipschitz * width * kernel.mu1) ** 2 + noise * kernel.roughness / (per_step * width)

    least = kernel.worst_case_mse_constant * (lipschitz * noise / per_step) ** (2 / 3)
    assert mse(h) == pytest.approx(least)
    assert mse(h) < min(mse(0.999 * h), mse(1.001 * h))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optimal_bandwidth("triangular", lipschitz=0, noise_variance=0.2), "lipschitz"),
        (lambda: linear_error([], [], 0.1, target=0.5), "weights must have 1 or more axes"),
        (lambda: linear_error([0.5, 0.5], np.ones((3, 2)), 0.1, target=np.ones(2)), r"weights \(3,\), target \(2,\)"),
        (lambda: worst_case_error([1.0], [-1.0], 0.1, 0.1), "lags"),
        (lambda: minimax_weights([1.0], 0.0, 0.1), "noise_variance"),
        (lambda: integer_bandwidth_error(0, lipschitz=0.1, noise_variance=0.1), "bandwidth"),
        (lambda: optimal_integer_bandwidth(lipschitz=1e-60, noise_variance=1.0), "lipschitz 1e-60 is too small"),
        (lambda: local_rate_slopes([100, 10]), "increasing"),
    ],
)
def test_what_no_formula_holds_for_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
