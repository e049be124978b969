"""Expected numbers of completions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat.sampling import allocate


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
)
def test_the_allocation_is_that_of_bisection_and_meets_the_budget(score, budget, floor, most):
    score = np.array(score)
    most = np.inf if most is None else most
    if most * len(score) < budget or floor * budget / len(score) > most:
        return
    found = allocate(score, budget, floor=floor, most=most)
    np.testing.assert_allclose(found.sum(), budget, rtol=1e-9)
    np.testing.assert_allclose(
        found, by_bisection(score, budget, floor * budget / len(score), most), rtol=1e-6, atol=1e-9
    )


def test_it_has_the_least_variance_at_its_cost():
    """No exchange between two prompts lowers sum pi^2 m / nu at the same cost."""
    rng = np.random.default_rng(0)
    share, noise, cost = rng.dirichlet(np.ones(9)), rng.random(9), 1 + rng.random(9)
    found = allocate(share * np.sqrt(noise / cost), 12, share=share)
    slope = share**2 * noise / found**2 / cost  # of the variance, per unit of cost
    np.testing.assert_allclose(slope, slope[0])


def test_prompts_of_score_zero_get_their_floor_and_what_the_others_cannot_take():
    assert allocate([1.0, 0.0, 0.0], 3, floor=0.5).tolist() == [2.0, 0.5, 0.5]
    assert allocate([1.0, 0.0, 0.0], 3, most=2).tolist() == [2.0, 0.5, 0.5]
    assert allocate([0.0, 0.0], 4).tolist() == [2.0, 2.0]


def test_the_floor_is_a_part_of_the_share():
    found = allocate([1.0, 0.0], 10, share=[0.2, 0.8], floor=0.5)
    np.testing.assert_allclose(found, [6.0, 4.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(score=[], budget=1), "no prompt"),
        (dict(score=[1.0, -1.0], budget=1), "score must be finite and non-neg"),
        (dict(score=[1.0, np.nan], budget=1), "score must be finite"),
        (dict(score=[1.0], budget=0), "budget must be positive"),
        (dict(score=[1.0, 1.0], budget=5, most=2), "more than 2 prompts can take"),
        (dict(score=[1.0, 1.0], budget=1, floor=1), "uniform sampling"),
        (dict(score=[1.0, 1.0], budget=4, floor=0.9, most=2, share=[0.1, 0.9]), "more than most=2"),
        (dict(score=[1.0, 1.0], budget=4, share=[0.5, 0.6]), "sum to 1"),
        (dict(score=[1.0, 1.0], budget=4, share=[1.0]), "share has 1 entries"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        allocate(**arguments)


@pytest.mark.parametrize("share", [["half", "half"], ["0.5", "0.5"], [0.5j, 0.5], [10**400, 1]])
def test_what_is_no_number_is_refused_by_name(share):
    with pytest.raises(TypeError, match="share must be numbers"):
        allocate([1.0, 1.0], 4, share=share)


@pytest.mark.parametrize("kind", [{"dtype": torch.bfloat16}, {"requires_grad": True}])
def test_scores_and_shares_may_be_tensors_of_a_training_loop(kind):
    found = allocate(torch.tensor([3.0, 1.0], **kind), 8, share=torch.tensor([0.25, 0.75], **kind), floor=0.5)
    np.testing.assert_allclose(found, allocate([3.0, 1.0], 8, share=[0.25, 0.75], floor=0.5))
