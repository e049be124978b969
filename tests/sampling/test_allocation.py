"""Expected numbers of completions, and whole numbers that match them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat.sampling.allocation import allocate, systematic


def allocated(score, budget, share=None, floor=0.0, most=np.inf):
    share = np.full(len(score), 1 / len(score)) if share is None else np.array(share)
    return allocate(np.array(score), budget, share=share, floor=floor, most=most)


def by_bisection(score, budget, least, most):
    low, high = 0.0, 1e12
    for _ in range(400):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(middle * score, least, most).sum() < budget else (low, middle)
    return np.clip(low * score, least, most)


@settings(max_examples=200)
@given(
    score=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30),
    budget=st.integers(1, 40),
    floor=st.floats(0, 0.9),
    most=st.one_of(st.none(), st.floats(1.0, 5.0)),
    seed=st.integers(0, 99),
)
def test_expected_numbers_are_those_of_bisection_and_drawn_ones_next_to_them(score, budget, floor, most, seed):
    most = np.inf if most is None else most
    if most * len(score) < budget or floor * budget / len(score) > most:
        return
    expected = allocated(score, budget, floor=floor, most=most)
    np.testing.assert_allclose(expected.sum(), budget, rtol=1e-9)
    slow = by_bisection(np.array(score), budget, floor * budget / len(score), most)
    np.testing.assert_allclose(expected, slow, rtol=1e-6, atol=1e-9)
    drawn = systematic(expected, np.random.default_rng(seed))
    assert drawn.sum() == budget and (np.abs(drawn - expected) < 1 + 1e-9).all()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (dict(score=[1.0, 0.0, 0.0], budget=3, floor=0.5), [2.0, 0.5, 0.5]),
        (dict(score=[1.0, 0.0, 0.0], budget=3, most=2), [2.0, 0.5, 0.5]),  # what the others cannot take
        (dict(score=[0.0, 0.0], budget=4), [2.0, 2.0]),
        (dict(score=[1.0, 0.0], budget=10, share=[0.2, 0.8], floor=0.5), [6.0, 4.0]),  # a part of the share
    ],
)
def test_prompts_of_score_zero_by_hand(arguments, expected):
    np.testing.assert_allclose(allocated(**arguments), expected)


@pytest.mark.parametrize("score", [[1.0, -1.0], [1.0, np.nan], [1.0]])
def test_scores_that_are_none_are_refused(score):
    with pytest.raises(ValueError, match="score"):
        allocated(score, 1, share=[0.5, 0.5])


def test_expectations_are_met_and_every_pair_of_prompts_can_come_together():
    """Within five binomial standard errors of 20,000 draws. A fixed order would never take neighbours together."""
    expected, rng = np.array([0.05, 0.3, 0.65, 1.0, 2.6, 3.4]), np.random.default_rng(0)
    mean = np.mean([systematic(expected, rng) for _ in range(20_000)], axis=0)
    part = expected % 1
    np.testing.assert_array_less(np.abs(mean - expected), 5 * np.sqrt(part * (1 - part) / 20_000) + 1e-12)
    pairs = [systematic(np.full(6, 0.5), rng) > 0 for _ in range(2_000)]
    assert (np.einsum("dp,dq->pq", pairs, np.array(pairs, dtype=int)) > 200).all()
