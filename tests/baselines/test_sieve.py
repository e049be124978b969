"""Sieve least squares: hand-computed fits, and what happens when the visits do not determine the value now."""

import numpy as np
import pytest
from cases import NO_PAST, groups, visits

from kaestat import make_baseline


def test_one_basis_function_is_the_running_mean():
    # past 1, 0, 1; the others of [1, 0]: (2 + 0) / 4, (2 + 1) / 4
    values = make_baseline("sieve", n_basis=1).values(groups([1, 0]), visits([(5, [1, 0]), (2, [1])]), step=9)
    np.testing.assert_allclose(values, [[0.5, 0.75]], rtol=1e-12)


@pytest.mark.parametrize("basis", ["bspline", "polynomial"])
def test_a_line_through_two_visits_and_the_group(basis):
    # means 0 at lag 4, 1 at lag 2 extrapolate to f = 2 z2 - z1 = 2 with relative variance h = 4 + 1 = 5;
    # the other completion z: (2 + 5 z) / 6
    values = make_baseline("sieve", n_basis=2, basis=basis).values(groups([1, 0]), visits([(4, [0]), (2, [1])]), step=9)
    np.testing.assert_allclose(values, [[2 / 6, 7 / 6]], rtol=1e-9)


def test_the_number_of_visits_bounds_the_basis():
    past = visits([(4, [1, 0, 0, 0])])
    np.testing.assert_allclose(make_baseline("sieve", n_basis=5, degree=3).values(groups([1]), past, step=9), 0.25)


def test_after_a_long_gap_the_last_spline_has_no_data_and_is_not_taken_for_certain_zero():
    # Three visits right at the start, always successful: the hat function at the current step sees none of them.
    past = visits([(100, [1, 1]), (99, [1, 1]), (98, [1, 1])])
    np.testing.assert_allclose(make_baseline("sieve", n_basis=3).values(groups([1]), past, step=100), 1.0, rtol=1e-6)


def test_without_past_it_is_the_leave_one_out_mean_or_the_other_prompts():
    np.testing.assert_allclose(make_baseline("sieve").values(groups([1, 0, 1]), NO_PAST, step=0), [[0.5, 1.0, 0.5]])
    assert make_baseline("sieve").values(groups([1], [0, 1, 1]), visits([], []), step=9)[0, 0] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "parameters",
    [{"n_basis": 0}, {"n_basis": 21}, {"n_basis": True}, {"n_basis": 2.0}, {"degree": -1}, {"basis": "wavelet"}],
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        make_baseline("sieve", **parameters)
