"""RewardHistory: what is kept, what is dropped, what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import RewardHistory
from tests.helpers.records import LAST_STEP, record, seen


@given(
    gaps=st.lists(st.integers(1, 7), min_size=1, max_size=25),
    present=st.lists(st.integers(1, 7), min_size=25, max_size=25),
    horizon=st.sampled_from([0.5, 1.0, 3.0, 10.0, np.inf]),
)
def test_every_visit_within_the_horizon_is_kept_and_memory_stays_bounded(gaps, present, horizon):
    history, log, step = RewardHistory(horizon), {"a": [], "b": [], "c": []}, 0
    for gap, bits in zip(gaps, present, strict=False):
        keys = [key for k, key in enumerate(log) if bits >> k & 1]
        record(history, keys, step, total=float(step))
        for key in keys:
            log[key].append(step)
        step += gap
        for key, steps in log.items():
            wanted = [(step - s, 2, float(s)) for s in steps if step - s <= horizon]
            assert seen(history, key, step)[len(seen(history, key, step)) - len(wanted) :] == wanted
    if horizon < np.inf:
        assert history.width <= max(horizon, 1) + 1


def test_capacity_grows_without_mixing_up_prompts():
    history = RewardHistory()
    for step in range(50):
        record(history, [("p", step)], step, total=float(step))

    assert len(history) == 50
    assert all(seen(history, ("p", step), 60) == [(60 - step, 2, float(step))] for step in range(50))


def test_weighted_and_divergence_fields_are_kept_where_asked_for():
    history = RewardHistory(weighted=True, with_divergence=True)
    sums = {"count": [2], "total": [1.0], "total_sq": [1.0], "weight": [3.0], "weight_sq": [5.0]}
    sums |= {"weighted_total": [2.0], "weighted_total_sq": [2.0], "divergence": [0.01]}
    sums |= {"weight_sq_total": [4.0], "weight_sq_total_sq": [4.5]}
    history.record(["a"], step=0, **sums)
    visits = history.visits(["a"], 1)

    assert history.weighted
    for name, (value,) in sums.items():
        assert getattr(visits, name)[0, -1] == value
    plain = RewardHistory()
    record(plain, ["a"], 0)
    assert plain.visits(["a"], 1).weight is None and plain.visits(["a"], 1).divergence is None


REFUSED = {
    "a step recorded twice": ("prompt 'a' was already recorded at step 5", {"step": 5}),
    "a step that goes backwards": ("went backwards", {"step": 4}),
    "half a step": ("step", {"step": 5.5}),
    "a key twice": ("distinct", {"keys": ["a", "a"], "count": [1, 1], "total": [0, 0], "total_sq": [0, 0]}),
    "sums of the wrong length": ("total has 2 entries for 1 rows", {"total": [1.0, 2.0]}),
    "sums that are not finite": ("total_sq must be finite", {"total_sq": [np.inf]}),
    "half a completion": ("count must hold whole numbers", {"count": [1.5]}),
    "a field it does not keep": ("this history records", {"weight": [1.0]}),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_bad_records_are_refused_and_change_nothing(reason):
    message, change = REFUSED[reason]
    history = RewardHistory()
    record(history, ["a"], 5)
    before = history.state_dict()
    good = {"keys": ["a"], "step": 6, "count": [1], "total": [1.0], "total_sq": [1.0]}

    with pytest.raises(ValueError, match=message):
        history.record(**{**good, **change})
    after = history.state_dict()
    np.testing.assert_equal(after, before)
    history.record(**good)
    assert len(seen(history, "a", 7)) == 2


def test_a_value_never_sees_its_own_step_or_the_future():
    history = RewardHistory()
    record(history, ["a"], 3)
    record(history, ["b"], 5)
    for step in (5, 4):
        with pytest.raises(ValueError, match="visits are the past"):  # of one prompt among others
            history.visits(["a", "never seen", "b"], step)
    assert history.visits(["never seen"], 0).count.sum() == 0


@pytest.mark.parametrize("horizon", [0, -1, np.nan, True, "3"])
def test_horizon_must_be_a_positive_number(horizon):
    with pytest.raises(ValueError, match="horizon must be positive"):
        RewardHistory(horizon)


def test_steps_and_counts_go_as_far_as_32_bits():
    history = RewardHistory()
    history.record(["a"], step=LAST_STEP, count=[LAST_STEP], total=[1.0], total_sq=[1.0])
    assert seen(history, "a", LAST_STEP + 1) == [(1, LAST_STEP, 1.0)]
    assert RewardHistory.from_state_dict(history.state_dict()).last_step == LAST_STEP
    with pytest.raises(ValueError, match="step must be a whole number from 0"):
        record(history, ["b"], LAST_STEP + 1)
    with pytest.raises(ValueError, match="count must hold whole numbers"):
        history.record(["b"], step=LAST_STEP, count=[LAST_STEP + 1], total=[1.0], total_sq=[1.0])


def test_prompts_without_completions_leave_the_sums_of_the_others_where_they_belong():
    history = RewardHistory()
    record(history, ["b"], 0)
    history.record(list("abcd"), step=1, count=[0, 1, 2, 0], total=[9, 0.5, 0.75, 9], total_sq=[9, 0.25, 0.5, 9])
    assert seen(history, "b", 2) == [(2, 2, 1.0), (1, 1, 0.5)]
    assert seen(history, "c", 2) == [(1, 2, 0.75)]
    assert history.visits(["c"], 2).total_sq[0, -1] == 0.5
    assert len(history) == 2


def test_no_more_than_the_stated_number_of_visits_is_kept():
    history = RewardHistory(max_visits=3)
    for step in range(9):
        history.record(["a"], step=step, count=[1], total=[step], total_sq=[step**2])
    assert history.width == 3
    assert history.visits(["a"], 9).total.tolist() == [[6, 7, 8]]
    assert RewardHistory.from_state_dict(history.state_dict()).max_visits == 3
    with pytest.raises(ValueError, match="max_visits must be at least 1"):
        RewardHistory(max_visits=0)
