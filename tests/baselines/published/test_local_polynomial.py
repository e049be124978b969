"""One-sided local polynomials at the current step; nprobust as an outside oracle."""

from dataclasses import replace

import numpy as np
import pytest
from nprobust import lprobust

from kaestat import make_baseline
from kaestat.baselines import LocalPolynomial
from tests.helpers.cases import groups, visits
from tests.helpers.method_case import MethodCase
from tests.helpers.references import KERNELS, other_prompts_mean, others, per_completion


def test_neither_the_age_of_a_past_nor_that_of_another_prompts_costs_digits():
    """In single precision, 1e-12 to the fourth power (twice the degree) is 0, and 1e12 to the fourth is infinite."""

    def single(arrays):
        return replace(arrays, **{k: v.astype(np.float32) for k, v in vars(arrays).items() if v is not None})

    past, baseline = [(lag, [1, 0, lag % 2]) for lag in range(8, 0, -1)], LocalPolynomial(bandwidth=np.inf)
    older, longer = [(1e12 * lag, rewards) for lag, rewards in past], [(9, [1]), *past]
    values = baseline.values(single(groups(*[[1, 0]] * 3)), single(visits(past, older, longer)), step=10**13)
    alone = baseline.values(groups([1, 0]), visits(past), step=10)  # without a bandwidth, any unit of time will do
    np.testing.assert_allclose(values[:2], np.tile(alone, (2, 1)), rtol=1e-3)


def test_a_prediction_from_visits_too_old_to_count_has_the_completions_of_the_newest():
    baseline = make_baseline("local_linear", kernel="exponential", bandwidth=0.5)
    past = visits([(60, [1, 0]), (40, [0, 0]), (1, [1, 0, 1, 1])])
    found = baseline.effective_completions(groups([1]), past, step=99)
    np.testing.assert_allclose(found, 4.0, rtol=1e-2)


def test_a_visit_that_outweighs_all_others_is_the_prediction():
    """Its weight is 1e17 times that of the other: the slope's share of the mass is the mass, up to rounding."""
    past = [(3, [0]), (2, [1])]
    for degree, kernel, bandwidth in ((1, "exponential", 0.0255), (2, "exponential", 0.0255), (1, "half-normal", 0.25)):
        baseline = LocalPolynomial(kernel=kernel, bandwidth=bandwidth, degree=degree)
        found = baseline.values(groups([1]), visits(past), step=9)
        np.testing.assert_allclose(found, 1.0, rtol=1e-9, err_msg=f"{kernel}, degree {degree}")
        size = baseline.effective_completions(groups([1]), visits(past), step=9)
        np.testing.assert_allclose(size, 1.0, rtol=1e-9, err_msg=f"{kernel}, degree {degree}")


@pytest.mark.parametrize("degree", [0, 6, True, 1.5, "2"])
def test_degree_must_be_one_to_five(degree):
    with pytest.raises(ValueError, match="degree"):
        make_baseline("local_polynomial", degree=degree)


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_nprobust_at_the_last_point(seed, degree):
    """lprobust(p=degree, triangular) at the current step, over past completions and the others of the group.

    Of degree 0 it is `kae`.
    """
    rng = np.random.default_rng(seed)
    step, bandwidth = 40, rng.uniform(8, 30)
    steps = np.sort(rng.choice(step, 25, replace=False))
    past = [(step - s, rng.integers(0, 2, rng.integers(1, 6))) for s in steps]
    group = rng.integers(0, 2, 4).astype(float)
    named = ("local_polynomial", {"degree": degree}) if degree else ("kae", {})
    baseline = make_baseline(named[0], bandwidth=bandwidth, **named[1])
    values = baseline.values(groups(group), visits(past), step=step)

    for g in range(4):
        x = np.concatenate([*[np.full(len(z), step - lag) for lag, z in past], np.full(3, step)])
        y = np.concatenate([*[z for _, z in past], np.delete(group, g)])
        widths = {"h": bandwidth, "b": bandwidth, "bwcheck": None}
        fit = lprobust(y, x, eval=np.array([float(step)]), p=degree, kernel="tri", masspoints="off", **widths)
        assert abs(values[0, g] - fit.Estimate["tau.us"].item()) < 1e-10


def local_polynomial(case, *, degree, kernel="triangular", bandwidth=10.0):
    """Weighted least squares of single completions on powers of the lag; the intercept."""
    k = KERNELS[kernel]

    def value(p, g):
        rows = [
            (case.step - visit.step, z, k((case.step - visit.step) / bandwidth) * w)
            for visit in case.past[p]
            for z, w in zip(visit.rewards, visit.weights, strict=True)
        ]
        rest = zip(others(case.rewards[p], g), others(case.weights[p], g), strict=True)
        rows += [(0, z, k(0) * w) for z, w in rest]
        rows = [row for row in rows if row[2] > 0]
        if not rows:
            return other_prompts_mean(case, p)
        lag, z, weight = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
        identified = min(degree, len(set(lag)) - 1)
        design = np.vander(lag / max(lag.max(), 1), identified + 1, increasing=True)
        root = np.sqrt(weight)
        return float(np.linalg.lstsq(design * root[:, None], z * root, rcond=None)[0][0])

    return per_completion(case, value)


CASES = [
    MethodCase(
        "local_linear", lambda case, **p: local_polynomial(case, degree=1, **p), {"bandwidth": 12}, weighted=True
    ),
    MethodCase(
        "local_polynomial", local_polynomial, {"degree": 2, "bandwidth": 25.0, "kernel": "half-normal"}, weighted=True
    ),
]
