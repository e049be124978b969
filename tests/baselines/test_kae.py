"""KAE (design, section 4): both normalizations, cold start, horizons."""

import math

import numpy as np
import pytest

from kaestat import make_baseline
from tests.helpers.cases import groups, visits
from tests.helpers.method_case import MethodCase
from tests.helpers.references import KERNELS, kae


@pytest.mark.parametrize(
    ("name", "value"),
    [("cold_start", value) for value in (math.nan, math.inf, True, None, "median", [0.5])]
    + [("normalization", value) for value in ("nw", 3, None)],
)
def test_parameters_out_of_range_are_refused(name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        make_baseline("kae", bandwidth=10, **{name: value})


def test_algorithm1_refuses_an_infinite_bandwidth_which_would_make_every_value_zero():
    with pytest.raises(ValueError, match="bandwidth must be finite"):
        make_baseline("kae", normalization="algorithm1", bandwidth=math.inf)


def test_horizon_is_what_the_kernel_reaches():
    assert make_baseline("kae", bandwidth=7).horizon == 7
    assert make_baseline("kae", bandwidth=10, kernel="exponential").horizon == math.inf
    assert make_baseline("kae", bandwidth=10, normalization="algorithm1").horizon == math.inf


def test_any_weight_however_small_is_no_cold_start():
    # K(9.999 / 10) = 2e-4: the ratio is still that of the past
    values = make_baseline("kae", bandwidth=10, cold_start=-2.0).values(groups([1]), visits([(9.999, [1, 0])]), step=50)
    np.testing.assert_allclose(values, [[0.5]], rtol=1e-9)


def _rate(c):
    """Corollary 1: i c N^(-1/3) steps, N all completions of the prompt but the one left out."""

    def bandwidth(case, p):
        n = sum(len(visit.rewards) for visit in case.past[p]) + len(case.rewards[p]) - 1
        return max(case.step, 1) * c * max(n, 1) ** (-1 / 3)

    return bandwidth


def _kae_with(bandwidth):
    return lambda case, **params: kae(case, **{**params, "bandwidth": bandwidth})


CASES = [
    *(
        MethodCase("kae", kae, {"kernel": kernel, "bandwidth": bandwidth}, weighted=True)
        for kernel, bandwidth in zip(KERNELS, (10.0, 4, 3.5, 8.0, 6.0), strict=True)
    ),
    MethodCase("kae", kae, {"bandwidth": math.inf}, weighted=True),
    MethodCase("kae", kae, {"bandwidth": 1e-6, "cold_start": 0.25}, weighted=True),
    MethodCase("kae", kae, {"normalization": "algorithm1", "bandwidth": 4}, weighted=True),
    MethodCase(
        "kae",
        _kae_with(lambda case, p: max(case.step, 1) * 0.5),
        {"bandwidth": make_baseline("kae", bandwidth="fraction").bandwidth.__class__(0.5)},
        weighted=True,
    ),
    MethodCase(
        "kae", _kae_with(_rate(1.5)), {"bandwidth": make_baseline("kae", bandwidth="rate").bandwidth.__class__(1.5)}
    ),
]
