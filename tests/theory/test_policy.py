"""Theorem 3: the recursion against quadratics, whose expected gap is exact, and the theorem's bound against both."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat.theory import suboptimality_recursion, theorem3_bound
from kaestat.theory.policy import recursion_factor


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
    with pytest.raises(AssertionError):  # half of the noise is not enough
        np.testing.assert_array_less(exact, suboptimality_recursion(exact[0], noise / 2, rate, pl=0.8, smoothness=0.8))


@given(seed=st.integers(0, 10_000), beta=st.floats(0.1, 8.0), steepest=st.floats(1.0, 4.0))
@settings(max_examples=100)
def test_no_quadratic_exceeds_the_recursion_even_while_the_first_rates_leap_too_far(seed, beta, steepest):
    rng = np.random.default_rng(seed)
    curvature = np.append(steepest, rng.uniform(0.1, steepest, 3))
    rate, noise = beta / np.arange(1, 60), rng.uniform(0, 1, 59)
    exact = quadratic_gap(curvature, rng.normal(size=4), noise, rate)
    bound = suboptimality_recursion(exact[0], noise, rate, pl=curvature.min(), smoothness=steepest)
    assert (exact <= bound * (1 + 1e-9)).all()


@given(pl=st.floats(0.05, 1.0), ratio=st.floats(1.0, 3.0), exponent=st.floats(1.05, 4.0), seed=st.integers(0, 10_000))
@settings(max_examples=200)
def test_the_theorems_bound_lies_above_the_recursion(pl, ratio, exponent, seed):
    smoothness, beta, n = pl * ratio, exponent / (2 * pl), 300
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0, 1, n)
    path = suboptimality_recursion(0.7, noise, beta / np.arange(1, n + 1), pl=pl, smoothness=smoothness)
    bound = theorem3_bound(initial_gap=0.7, largest_mse=noise.max(), beta=beta, pl=pl, smoothness=smoothness)
    for n0 in (1, 2, 10, n):
        assert path[n] <= bound.gap(n, n0, noise[n0 - 1 :].max())
    assert path[2] <= bound.gap(2, 1, noise[:2].max())


@given(pl=st.floats(0.05, 1.0), ratio=st.floats(1.0, 10.0), exponent=st.floats(1.05, 4.0))
@settings(max_examples=100)
def test_c1_bounds_every_product_of_factors_as_the_papers_lemma_says(pl, ratio, exponent):
    beta, k = exponent / (2 * pl), np.arange(1, 400)
    factor = recursion_factor(beta / k, pl, pl * ratio)
    scale = theorem3_bound(initial_gap=1.0, largest_mse=1.0, beta=beta, pl=pl, smoothness=pl * ratio).c1
    for n0 in (1, 2, 5, 50):
        product = np.cumprod(factor[n0 - 1 :])
        assert (product <= scale * (n0 / k[n0 - 1 :]) ** exponent).all()


def test_the_constants_of_the_theorem_are_no_use_for_steep_rates():
    bound = theorem3_bound(initial_gap=0.1, largest_mse=0.1, beta=60, pl=0.01, smoothness=0.3)
    assert bound.gap(10**6, 10**3, 0.1) > 1  # rewards lie in [0, 1]
    assert theorem3_bound(initial_gap=0.1, largest_mse=0.1, beta=60, pl=0.1, smoothness=3).c1 == np.inf
    bound = theorem3_bound(initial_gap=0.0, largest_mse=0.0, beta=1e15, pl=0.1, smoothness=3)  # as many first steps
    assert (bound.c1, bound.c2, bound.c3) == (0.0, 0.0, np.inf)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: suboptimality_recursion(1.0, [0.1], [0.1], pl=2.0, smoothness=1.0), "pl must be at most smoothness"),
        (lambda: suboptimality_recursion(1.0, [0.1, 0.1], [0.1], pl=1.0, smoothness=1.0), "one number for each step"),
        (lambda: suboptimality_recursion(1.0, [0.1], [0.0], pl=1.0, smoothness=1.0), "learning_rate"),
        (
            lambda: theorem3_bound(initial_gap=1, largest_mse=1, beta=1, pl=0.5, smoothness=1),
            r"beta > 1 / \(2 mu\) = 1",
        ),
        (
            lambda: theorem3_bound(initial_gap=1, largest_mse=1, beta=2, pl=0.5, smoothness=1).gap(3, 4, 0.1),
            "1 <= n0 <= n",
        ),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
