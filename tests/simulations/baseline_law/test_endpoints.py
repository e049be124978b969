"""Endpoints and verdicts on curves whose answers are known by hand."""

import numpy as np
import pytest

from simulations.baseline_law.endpoints import area, completions_ratio, over_bases, steps_to

CHECKS = np.array([0.0, 10.0, 20.0, 30.0])


def test_area_is_the_mean_over_the_budget():
    assert area(np.array([0.0, 1.0, 1.0, 1.0]), CHECKS) == pytest.approx((0.5 + 1 + 1) / 3)


def test_a_target_between_two_checks_is_on_their_line():
    assert steps_to(np.array([0.0, 0.2, 0.4, 0.8]), CHECKS, 0.6) == pytest.approx(25.0)
    assert steps_to(np.array([0.5, 0.6, 0.7, 0.8]), CHECKS, 0.5) == 0.0
    assert steps_to(np.array([0.0, 0.2, 0.4, 0.5]), CHECKS, 0.6) == np.inf


def test_twice_as_fast_needs_half_the_completions():
    slow, fast = CHECKS / 100, np.minimum(CHECKS / 50, 0.4)
    assert completions_ratio(fast, slow, CHECKS, 1.0) == pytest.approx(0.5)
    assert completions_ratio(slow, slow, CHECKS, 0.7) == pytest.approx(1.0)
    assert completions_ratio(slow, fast, CHECKS, 0.4) == pytest.approx(2.0)
    assert completions_ratio(slow, fast, CHECKS, 1.0) == np.inf


def test_intervals_are_students_over_bases():
    """Logs 0, .1, .2: mean .1, standard error .1 / sqrt 3, quantile 4.3027 at two degrees of freedom."""
    ratio, low, high = over_bases(np.array([0.0, 0.1, 0.2]))
    half = 4.302653 * 0.1 / np.sqrt(3)
    assert (ratio, low, high) == pytest.approx((np.exp(0.1), np.exp(0.1 - half), np.exp(0.1 + half)), rel=1e-6)


def test_a_target_out_of_reach_on_a_base_has_no_upper_end():
    ratio, low, high = over_bases(np.array([0.0, 0.1, np.inf]))
    assert (ratio, low, high) == pytest.approx((np.exp(0.1), 1.0, np.inf))
