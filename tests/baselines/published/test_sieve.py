"""Sieve least squares where the visits do not determine the value now, and parameters out of range."""

import numpy as np
import pytest
from scipy.interpolate import BSpline

from kaestat import make_baseline
from tests.helpers.cases import groups, visits
from tests.helpers.method_case import MethodCase
from tests.helpers.references import other_prompts_mean, others, per_completion, weighted_mean


def test_after_a_long_gap_the_last_spline_has_no_data_and_is_not_taken_for_certain_zero():
    # Three visits right at the start, always successful: the hat function at the current step sees none of them.
    past = visits([(100, [1, 1]), (99, [1, 1]), (98, [1, 1])])
    np.testing.assert_allclose(make_baseline("sieve", n_basis=3).values(groups([1]), past, step=100), 1.0, rtol=1e-6)


@pytest.mark.parametrize(
    "parameters",
    [{"n_basis": 0}, {"n_basis": 21}, {"n_basis": True}, {"n_basis": 2.0}, {"degree": -1}],
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        make_baseline("sieve", **parameters)


def test_a_prompt_has_no_more_basis_functions_than_visits_whoever_stands_beside_it():
    # Steps of a function: three thirds, of which visits at lags 3 and 2 of 10 share the last; of four quarters they
    # would not. The other prompt has visits enough for four: those at lags 2 and 1 of 8 lie in the last.
    past = visits([(10, [0]), (3, [1]), (2, [0])], [(8, [0]), (5, [0]), (3, [1]), (2, [0]), (1, [1])])
    values = make_baseline("sieve", degree=0, n_basis=4).values(groups([1], [1]), past, step=20)
    np.testing.assert_allclose(values, [[1 / 2], [1 / 2]])


def sieve(case, *, n_basis=3, degree=1):
    """Least squares of single completions, the others of the group standing at time 1."""

    def design(times, size):
        times = np.asarray(times, dtype=float)
        d = min(degree, size - 1)
        knots = np.concatenate([np.zeros(d), np.linspace(0, 1, size - d + 1), np.ones(d)])
        return BSpline.design_matrix(times, knots, d).toarray()

    def value(p, g):
        past = [visit for visit in case.past[p] if sum(visit.weights) > 0]
        rest_z, rest_w = others(case.rewards[p], g), others(case.weights[p], g)
        if not past:
            return weighted_mean(rest_z, rest_w, other_prompts_mean(case, p))
        first = past[0].step
        time = [(visit.step - first) / (case.step - first) for visit in past]
        size = min(n_basis, len(past))
        while np.linalg.matrix_rank(np.vstack([design(time, size), design([1.0], size)])) > np.linalg.matrix_rank(
            design(time, size)
        ):
            size -= 1
        t, z, w = [], [], []
        for visit, when in zip(past, time, strict=True):
            t += [when] * len(visit.rewards)
            z += visit.rewards
            w += visit.weights
        t, z, w = t + [1.0] * len(rest_z), z + rest_z, w + rest_w
        root = np.sqrt(w)
        coefficients = np.linalg.lstsq(design(t, size) * root[:, None], np.array(z) * root, rcond=1e-12)[0]
        return float(design([1.0], size)[0] @ coefficients)

    return per_completion(case, value)


CASES = [
    MethodCase("sieve", sieve, weighted=True),
    MethodCase("sieve", sieve, {"n_basis": 1, "degree": 0}, weighted=True),
    MethodCase("sieve", sieve, {"n_basis": 4, "degree": 2}),
]
