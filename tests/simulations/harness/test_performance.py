"""Every measure against its closed form, a jackknife that leaves out one replicate at a time, and brute force."""

import math

import numpy as np
import pytest

from simulations.harness import Estimate, average, empirical_se, proportion, ratio_of_means, reduction, variance
from simulations.harness.performance import correlation
from tests.helpers.statistical import generator

N = 40
TRUTH = 2.0


def columns(rng: np.random.Generator, *shape: int) -> dict[str, np.ndarray]:
    """Skewed, correlated columns: nothing here is normal."""
    common = rng.gamma(2.0, size=shape)
    return {
        "estimate": TRUTH + 0.7 * (common - 2) + 0.3 * rng.standard_normal(shape),
        "other": 3 + common + rng.exponential(size=shape),
        "error": 0.5 + 0.3 * rng.gamma(4.0, 0.25, size=shape),
    }


# Each measure as a function of the columns; the jackknife and the brute force apply it again and again.
MEASURES = {
    "average": lambda c: average("m", c["estimate"]),
    "variance": lambda c: variance("m", c["estimate"]),
    "empirical_se": lambda c: empirical_se("m", c["estimate"]),
    "proportion": lambda c: proportion("m", abs(c["estimate"] - TRUTH) < 1.5 * c["error"]),
    "ratio_of_means": lambda c: ratio_of_means("m", c["estimate"], c["other"]),
    "reduction": lambda c: reduction("m", c["estimate"], c["other"]),
}
# A delta-method or binomial error differs from the jackknife by a factor of 1 + O(1/n).
NOT_JACKKNIFED = {"ratio_of_means": 0.02, "reduction": 0.02, "proportion": 0.02}


@pytest.mark.parametrize("name", MEASURES)
def test_error_equals_the_jackknife_done_by_hand(name):
    measure, data = MEASURES[name], columns(generator(1), N)
    without = [measure({key: np.delete(column, i) for key, column in data.items()}).estimate for i in range(N)]
    by_hand = math.sqrt((N - 1) / N * np.sum((np.array(without) - np.mean(without)) ** 2))
    assert measure(data).mcse == pytest.approx(by_hand, rel=NOT_JACKKNIFED.get(name, 1e-10))
    assert measure(data).n == N


def test_closed_forms_by_hand():
    column = np.array([1.0, 2.0, 6.0])
    assert average("a", column) == Estimate("a", 3.0, pytest.approx(math.sqrt(7 / 3)), 3)
    assert variance("v", column).estimate == 7.0
    # Without each in turn: 8, 12.5, .5.
    assert variance("v", column).mcse == pytest.approx(math.sqrt(2 / 3 * (1 + 5.5**2 + 6.5**2)))
    assert empirical_se("s", column).estimate == pytest.approx(math.sqrt(7))
    assert ratio_of_means("q", column, 2 * column) == Estimate("q", 0.5, 0.0, 3)
    assert reduction("q", column, 2 * column).estimate == 50.0


def test_proportion_has_the_binomial_error_and_never_claims_certainty():
    assert proportion("p", np.arange(10) < 3) == Estimate("p", 0.3, pytest.approx(math.sqrt(0.021)), 10)
    for hits in (np.ones(10, bool), np.zeros(10, bool)):
        found = proportion("p", hits)
        assert found.estimate == hits[0]
        assert found.mcse == pytest.approx(math.sqrt(12 / 14 * 2 / 14 / 14))


def test_correlation_has_the_error_of_its_formula_and_none_where_a_column_is_constant():
    found = correlation("r", np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
    assert found == Estimate("r", pytest.approx(0.5), pytest.approx(0.75 / math.sqrt(3)), 3)
    varied, constant = np.arange(3.0), np.ones(3)
    for columns in ((constant, varied), (varied, constant), (varied[:2], varied[:2])):
        assert math.isnan(correlation("r", *columns).estimate)


def test_errors_of_one_or_two_replicates_are_unknown_not_zero():
    one, two = np.array([1.0]), np.array([1.0, 2.0])
    assert math.isnan(average("a", one).mcse)
    assert math.isnan(ratio_of_means("a", one, one).mcse)
    assert all(math.isnan(number) for number in (variance("v", two).mcse, empirical_se("v", two).estimate))
