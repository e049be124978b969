"""Theorem 3's recursion against quadratics, whose expected gap is exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat.theory import suboptimality_recursion


def quadratic_gap(curvature: np.ndarray, start: np.ndarray, noise: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Expected gap of ascent on ``-1/2 sum_j c_j theta_j^2`` with gradient noise of variance noise_k / d an axis."""
    second, gaps = start**2, [0.5 * curvature @ start**2]
    for eta, c in zip(rate, noise, strict=True):
        second = (1 - eta * curvature) ** 2 * second + eta**2 * c / len(start)
        gaps.append(0.5 * curvature @ second)
    return np.array(gaps)


def test_a_round_quadratic_attains_the_recursion():
    rng = np.random.default_rng(0)
    rate, noise = 1.5 / np.arange(1, 200), rng.uniform(0.1, 2.0, 199)
    curvature, start = np.full(3, 0.8), np.array([1.0, -2.0, 0.5])
    exact = quadratic_gap(curvature, start, noise, rate)
    bound = suboptimality_recursion(exact[0], noise, rate, pl=0.8, smoothness=0.8)
    np.testing.assert_allclose(bound, exact, rtol=1e-10)


@given(seed=st.integers(0, 10_000), beta=st.floats(0.1, 8.0), steepest=st.floats(1.0, 4.0))
@settings(max_examples=100)
def test_no_quadratic_exceeds_the_recursion_even_while_the_first_rates_are_too_large(seed, beta, steepest):
    rng = np.random.default_rng(seed)
    curvature = np.append(steepest, rng.uniform(0.1, steepest, 3))
    rate, noise = beta / np.arange(1, 60), rng.uniform(0, 1, 59)
    exact = quadratic_gap(curvature, rng.normal(size=4), noise, rate)
    bound = suboptimality_recursion(exact[0], noise, rate, pl=curvature.min(), smoothness=steepest)
    assert (exact <= bound * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    ("gradient_mse", "learning_rate", "pl", "message"),
    [
        ([0.1], [0.1], 2.0, "pl must be at most smoothness"),
        ([0.1, 0.1], [0.1], 1.0, "one number for each step"),
        ([0.1], [0.0], 1.0, "learning_rate"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(gradient_mse, learning_rate, pl, message):
    with pytest.raises(ValueError, match=message):
        suboptimality_recursion(1.0, gradient_mse, learning_rate, pl=pl, smoothness=1.0)
