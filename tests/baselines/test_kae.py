"""KAE (design, section 4): both normalizations, cold start, mixed bandwidths."""

import math

import numpy as np
import pytest

from kaestat import make_baseline
from kaestat.smoothing.selectors import Fixed
from tests.helpers.cases import groups, visits
from tests.helpers.method_case import MethodCase
from tests.helpers.references import KERNELS, kae

# Step 20, bandwidth 10, triangular: K(3/10) = 1.4, K(1/10) = 1.8, K(0) = 2. Past: lag 3 has 1 of 2, lag 1 has 3 of 4.
PAST = visits([(3, [1, 0]), (1, [1, 1, 1, 0])])
GROUP = groups([1, 0, 1])


def test_algorithm1_normalization_counts_the_whole_history():
    # M = (10/20) * 6 + 2*2 = 7
    values = make_baseline("kae", bandwidth=10, normalization="algorithm1").values(GROUP, PAST, step=20)
    np.testing.assert_allclose(values, [[8.8 / 7, 10.8 / 7, 8.8 / 7]], rtol=1e-12)


@pytest.mark.parametrize("cold_start", [math.nan, math.inf, True, None, "median", [0.5]])
def test_cold_start_must_be_a_finite_number_or_batch_mean(cold_start):
    with pytest.raises((ValueError, TypeError), match="cold_start"):
        make_baseline("kae", bandwidth=10, cold_start=cold_start)


def test_algorithm1_refuses_an_infinite_bandwidth_which_would_make_every_value_zero():
    with pytest.raises(ValueError, match="bandwidth must be finite"):
        make_baseline("kae", normalization="algorithm1", bandwidth=math.inf)


def test_horizon_is_what_the_kernel_reaches():
    assert make_baseline("kae", bandwidth=7).horizon == 7
    assert make_baseline("kae", bandwidth=10, kernel="exponential").horizon == math.inf
    assert make_baseline("kae", bandwidth=10, normalization="algorithm1").horizon == math.inf


def test_algorithm1_before_the_first_step_has_passed_counts_it_as_one():
    # i = 0 would divide by zero: M = (10 / 1) * 2 for visits handed in at step 0
    values = make_baseline("kae", bandwidth=10, normalization="algorithm1").values(
        groups([1]), visits([(5, [1, 1])]), step=0
    )
    np.testing.assert_allclose(values, [[(1.0 * 2) / 20]], rtol=1e-12)


def test_any_weight_however_small_is_no_cold_start():
    # K(9.999 / 10) = 2e-4: the ratio is still that of the past
    values = make_baseline("kae", bandwidth=10, cold_start=-2.0).values(groups([1]), visits([(9.999, [1, 0])]), step=50)
    np.testing.assert_allclose(values, [[0.5]], rtol=1e-9)


class Mixture(Fixed):
    """Two bandwidths, mixed by shares."""

    def __init__(self, bandwidths, shares):
        super().__init__(1.0)
        object.__setattr__(self, "pairs", list(zip(bandwidths, shares, strict=True)))

    def resolve(self, visits, current_count, *, step, kernel):
        return self.pairs


@pytest.mark.parametrize("as_arrays", [False, True], ids=["numbers", "arrays"])
def test_several_bandwidths_are_mixed_by_their_shares(as_arrays):
    shares = [np.full((1, 1), share) if as_arrays else share for share in (0.25, 0.75)]
    mixed = make_baseline("kae", bandwidth=Mixture([10.0, 4.0], shares)).values(GROUP, PAST, step=20)
    wide, narrow = (make_baseline("kae", bandwidth=b).values(GROUP, PAST, step=20) for b in (10.0, 4.0))
    np.testing.assert_allclose(mixed, 0.25 * wide + 0.75 * narrow, rtol=1e-12)
    assert np.abs(wide - narrow).max() > 0.01


@pytest.mark.parametrize("normalization", ["nw", 3, None])
def test_normalization_must_be_one_of_the_two(normalization):
    with pytest.raises(ValueError, match="normalization must be one of"):
        make_baseline("kae", bandwidth=10, normalization=normalization)


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
