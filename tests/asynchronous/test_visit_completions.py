"""Completions that have the sums of a visit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kaestat import Groups, Visits
from kaestat.asynchronous.visit_completions import completions_of, joined, split_now
from kaestat.core.arrays import visit_sums
from kaestat.history.fields import WEIGHTED_FIELDS

rewards = st.lists(st.floats(-3, 3, allow_subnormal=False), min_size=1, max_size=9)


def visit_of(groups: Groups) -> Visits:
    sums = {name: column[:, None].astype(float) for name, column in visit_sums(groups).items()}
    return Visits(lag=np.zeros_like(sums["count"]), **sums)


@given(rows=st.lists(rewards, min_size=1, max_size=4))
def test_they_have_the_number_sum_and_sum_of_squares_of_the_visit(rows):
    widest = max(map(len, rows))
    mask = np.array([[k < len(row) for k in range(widest)] for row in rows])
    reward = np.array([row + [0.0] * (widest - len(row)) for row in rows])
    visit = visit_of(Groups(reward, mask=mask))
    again = visit_of(completions_of(visit))
    np.testing.assert_array_equal(again.count, visit.count)
    np.testing.assert_allclose(again.total, visit.total, atol=1e-12)
    np.testing.assert_allclose(again.total_sq, visit.total_sq, rtol=1e-12, atol=1e-12)


@given(successes=st.integers(0, 7), failures=st.integers(0, 7))
def test_rewards_of_0_and_1_are_what_they_were(successes, failures):
    reward = np.array([[1.0] * successes + [0.0] * failures])
    visit = visit_of(Groups(reward)) if reward.size else Visits.of_successes(np.zeros((1, 1)), np.zeros((1, 1)), 0.0)
    found = completions_of(visit)
    np.testing.assert_allclose(np.sort(found.reward[found.mask]), np.sort(reward[0]), atol=1e-15)


@given(
    rows=st.lists(st.tuples(st.integers(0, 1), st.floats(0, 9, allow_subnormal=False)), min_size=1, max_size=9),
    further=st.integers(0, 9),
)
def test_weighted_completions_of_0_and_1_have_all_the_sums_of_the_visit(rows, further):
    reward, weight = (np.array([[float(x) for x in column] + [1.0] * further]) for column in zip(*rows, strict=True))
    visit = visit_of(Groups(reward, weight=weight))
    found = completions_of(visit)
    assert (found.weight >= 0).all()
    again = visit_of(found)
    for name in ("count", "total", "total_sq", *WEIGHTED_FIELDS):
        np.testing.assert_allclose(getattr(again, name), getattr(visit, name), rtol=1e-9, atol=1e-9, err_msg=name)


@given(rows=st.lists(st.tuples(st.floats(-3, 3), st.floats(0.01, 9)), min_size=1, max_size=9))
def test_others_have_its_number_weight_and_weighted_mean(rows):
    reward, weight = (np.array([column]) for column in zip(*rows, strict=True))
    visit = visit_of(Groups(reward, weight=weight))
    again = visit_of(completions_of(visit))
    for name in ("count", "weight", "weighted_total"):
        np.testing.assert_allclose(getattr(again, name), getattr(visit, name), rtol=1e-7, atol=1e-7, err_msg=name)


@given(weight=st.floats(0.01, 9), heavy=st.integers(1, 4), others=st.integers(4, 7))
def test_rounding_gives_no_weight_to_completions_without_one(weight, heavy, others):
    """Completions of positive weight are counted, so rounding of 0 would change values with the order of sums."""
    weights = np.array([[weight] * heavy + [0.0] * others])
    found = completions_of(visit_of(Groups(np.ones_like(weights), weight=weights)))
    assert (found.weight > 0).sum() == heavy


def test_the_present_visit_is_split_off_and_joined_to_the_group():
    lag, count = np.array([[3.0, 0.0], [5.0, 2.0]]), np.array([[4.0, 2.0], [0.0, 3.0]])
    visits = Visits(lag=lag, count=count, total=count / 2, total_sq=count / 2)
    past, now = split_now(visits)
    assert past.count.tolist() == [[4.0, 0.0], [0.0, 3.0]] and now.count.tolist() == [[2.0], [0.0]]
    whole = joined(Groups(np.array([[1.0], [0.0]]), prompt_ids=["a", "b"]), completions_of(now))
    assert whole.mask.tolist() == [[True, True, True], [True, False, False]] and whole.prompt_ids == ["a", "b"]
    assert whole.reward[0].tolist() == [1.0, 1.0, 0.0]
    assert split_now(past)[1] is None
