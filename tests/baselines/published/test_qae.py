"""QAE (Wu et al., 2025): the quantile."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, make_baseline
from tests.helpers.cases import NO_PAST, groups
from tests.helpers.method_case import MethodCase
from tests.helpers.references import per_completion


@pytest.mark.parametrize("quantile", [0.07, 0.29, 0.4, 0.57, 1.0])
@pytest.mark.parametrize("size", [1, 5, 8, 100])
def test_it_is_numpys_inverse_of_the_distribution_function(quantile, size):
    rewards = np.random.default_rng(0).random((7, size))
    found = make_baseline("qae", quantile=quantile).values(groups(*rewards.tolist()), NO_PAST, step=0)
    rank = max(-(-round(quantile * 100) * size // 100), 1)  # in whole numbers
    np.testing.assert_array_equal(found[:, 0], np.sort(rewards, axis=1)[:, rank - 1])
    if size < 100:  # NumPy multiplies in floating point
        np.testing.assert_array_equal(found[:, 0], np.quantile(rewards, quantile, axis=1, method="inverted_cdf"))


def test_advantages_are_grpos_with_the_quantile_for_the_mean():
    rewards = np.array([1.0, 0, 0, 0, 1, 1, 1, 0])
    found = AdvantageEstimator("qae").step(["hard"] * 4 + ["easy"] * 4, rewards, 0)
    np.testing.assert_allclose(found, np.array([1.0, 0, 0, 0, 0, 0, 0, -1]) / (0.5 + 1e-6), rtol=1e-12)


@pytest.mark.parametrize("quantile", [0.0, -0.1, 1.1, np.nan])
def test_a_quantile_is_a_share(quantile):
    with pytest.raises(ValueError, match="quantile"):
        make_baseline("qae", quantile=quantile)


def qae(case, *, quantile=0.4):
    """The lowest reward of the group that a share ``quantile`` of it does not exceed."""

    def value(p, g):
        row = sorted(case.rewards[p])
        return next(z for z in row if sum(other <= z for other in row) / len(row) >= quantile)

    return per_completion(case, value)


CASES = [
    MethodCase("qae", qae),
    MethodCase("qae", qae, {"quantile": 0.75}),
]
