"""Whole numbers with given expectations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat.sampling import allocate, systematic


@given(
    score=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40), budget=st.integers(1, 60), seed=st.integers(0, 99)
)
def test_each_number_is_floor_or_ceiling_and_the_sum_is_exact(score, budget, seed):
    expected = allocate(score, budget)
    drawn = systematic(expected, np.random.default_rng(seed))
    assert drawn.sum() == budget
    assert (np.abs(drawn - expected) < 1 + 1e-9).all()


def test_expectations_are_met():
    """Within five binomial standard errors of 40,000 draws, each a floor or a ceiling."""
    expected, rng = np.array([0.05, 0.3, 0.65, 1.0, 2.6, 3.4]), np.random.default_rng(0)
    mean = np.mean([systematic(expected, rng) for _ in range(40_000)], axis=0)
    part = expected % 1
    np.testing.assert_array_less(np.abs(mean - expected), 5 * np.sqrt(part * (1 - part) / 40_000) + 1e-12)


def test_every_pair_of_prompts_can_come_together():
    """The order is drawn anew each time: a fixed one would never take neighbours together."""
    expected, rng = np.full(6, 0.5), np.random.default_rng(1)
    together = np.zeros((6, 6))
    for _ in range(2_000):
        here = systematic(expected, rng) > 0
        together += np.outer(here, here)
    assert (together > 200).all()


@pytest.mark.parametrize("expected", [[0.5, 0.2], [-1.0, 2.0], [np.nan, 1.0], [[1.0]]])
def test_what_has_no_whole_sum_is_refused(expected):
    with pytest.raises(ValueError, match="expected must"):
        systematic(expected, np.random.default_rng(0))


def test_no_prompt_gives_no_number():
    assert systematic([], np.random.default_rng(0)).tolist() == []
