"""Sums over trailing windows: a plain loop as the reference, exact zeros, and no digits lost over long runs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kaestat import Visits
from kaestat.smoothing.kernels import as_kernel
from kaestat.smoothing.selectors.smoothing import CausalSmoother
from kaestat.smoothing.selectors.window_sums import window_starts, window_sums

POLYNOMIALS = [(1.0,), (2.0, -0.25), (1.5, 0.0, -0.0234375), (1.0, -0.5, 0.25, -0.125)]


def sums_by_loops(time, column, coefficients, width):
    sums = np.zeros(column.shape)
    for p, times in enumerate(time):
        for i in range(len(times)):
            lags = [(times[i] - times[v], column[p, v]) for v in range(i) if times[i] - times[v] < width]
            sums[p, i] = math.fsum(c * lag**d * x for lag, x in lags for d, c in enumerate(coefficients))
    return sums


@given(
    gaps=arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(1, 24)), elements=st.integers(0, 9)),
    start=st.integers(0, 10**6),
    width=st.sampled_from([1e-101, 0.5, 1.0, 3.0, 7.3, 20.0, 1000.0, math.inf]),
    coefficients=st.sampled_from(POLYNOMIALS),
    seed=st.integers(0, 99),
)
def test_sums_are_those_of_a_loop_whatever_the_times(gaps, start, width, coefficients, seed):
    time = start + np.cumsum(gaps, axis=1).astype(float)
    column = np.random.default_rng(seed).normal(size=time.shape)
    scale = sum(abs(c) * 220.0**d for d, c in enumerate(coefficients))  # 24 gaps of up to 9
    expected = sums_by_loops(time, column, coefficients, width)
    np.testing.assert_allclose(window_sums(time, column, coefficients, width), expected, atol=1e-13 * scale, rtol=0)


def test_sum_is_exactly_zero_where_the_window_is_empty():
    time = np.array([[0.0, 5.0, 10.0, 11.0, 12.0, 30.0]])
    column = np.array([[0.1, 0.3, 0.7, 1.1, 1.3, 1.7]])
    sums = window_sums(time, column, (2.0, -0.5), 4.0)
    assert (sums[0] == 0).tolist() == [True, True, True, False, False, True]


def test_window_is_open_a_visit_one_width_ago_is_outside():
    assert window_starts(np.array([[0.0, 1.0, 2.0, 5.0]]), 2.0).tolist() == [[0, 0, 1, 3]]


def test_rows_do_not_see_each_other():
    time = np.array([[0.0, 1.0], [0.0, 1.0]])
    sums = window_sums(time, np.array([[1.0, 0.0], [10.0, 0.0]]), (1.0,), math.inf)
    assert sums.tolist() == [[0.0, 1.0], [0.0, 10.0]]


def test_real_and_imaginary_part_are_summed_side_by_side():
    rng = np.random.default_rng(0)
    time = np.cumsum(rng.integers(1, 5, size=(3, 40)), axis=1).astype(float)
    both = rng.normal(size=time.shape) + 1j * rng.normal(size=time.shape)
    sums = window_sums(time, both, (2.0, -0.1), 20.0)
    np.testing.assert_allclose(sums.real, window_sums(time, both.real, (2.0, -0.1), 20.0), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(sums.imag, window_sums(time, both.imag, (2.0, -0.1), 20.0), rtol=1e-14, atol=1e-14)


def test_long_run_loses_no_digits_where_running_sums_over_all_of_it_do():
    n, width = 100_000, 10.0
    time = np.arange(n, dtype=float)[None]
    column = 1 / 3 + np.zeros((1, n))
    coefficients = (2.0, -2.0 / width)
    exact = math.fsum((2.0 - 2.0 * lag / width) / 3 for lag in range(1, 10))
    assert window_sums(time, column, coefficients, width)[0, -1] == pytest.approx(exact, rel=1e-14)
    level, moment = (np.cumsum(np.append(0.0, column[0] * time[0] ** power)) for power in (0, 1))
    level, moment = level[-2] - level[-11], moment[-2] - moment[-11]
    running = (coefficients[0] + coefficients[1] * time[0, -1]) * level - coefficients[1] * moment
    assert abs(running / exact - 1) > 1e-8, "the trap that the stretches avoid"


@pytest.mark.parametrize("name", ["triangular", "epanechnikov"])
def test_visit_at_the_very_end_of_the_support_does_not_turn_rounding_into_a_prediction(name):
    lag = np.array([[50.0, 20.0, 10.0], [51.0, 30.0, 5.0]])  # irregular, so that moments are used
    total = np.array([[0.25, 0.75, 0.5], [0.5, 0.25, 1.0]])
    smoother = CausalSmoother(Visits(lag=lag, count=np.ones((2, 3)), total=total, total_sq=total**2))
    for bandwidth in (np.nextafter(30.0, 40.0), 30.0 * (1 + 1e-13)):  # lags of 30 get a weight of rounding size
        assert smoother.forward(as_kernel(name), bandwidth)[0, 1] == 0.25
