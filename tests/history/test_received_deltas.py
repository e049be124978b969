"""Deltas count once, however often and in whatever order they come, and none is lost."""

import copy
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, HistoryDelta
from kaestat.history.received_deltas import Received
from kaestat.integrations.workers import all_gather, ray_actor
from kaestat.integrations.workers.ray_actor import SavedEstimator
from tests.helpers.faulty_deliveries import KINDS, schedule


def worker() -> AdvantageEstimator:
    return AdvantageEstimator("kae", bandwidth=10, order="any", keep_deltas=True)


def completions(estimator) -> float:
    return float(estimator.history.as_delta().sums["count"].sum())


@given(st.lists(st.integers(1, 12)))
def test_numbers_are_held_as_a_set_would_hold_them(numbers):
    received = Received().joined(("a", number) for number in numbers)
    received = Received.of_plain(received.plain())
    assert [n for n in range(1, 15) if ("a", n) in received] == sorted(set(numbers))
    assert ("b", 1) not in received and received.next_of("a") == ("a", max(numbers, default=0) + 1)


def test_one_lost_number_is_one_gap_however_long_the_run():
    received = Received().joined([("a", 1), *(("a", number) for number in range(3, 1000))])
    assert received.plain() == {"a": [999, 2, 2]}


@pytest.mark.parametrize("plain", [[], {"a": 3}, {"a": [3, 1]}, {"a": [3, 2, 1]}, {"a": [3, 2, 3]}, {"a": [2.0]}])
def test_altered_numbers_are_refused(plain):
    with pytest.raises(ValueError, match="received deltas"):
        Received.of_plain(plain)


def test_a_delta_counts_once_in_others_and_in_the_sender():
    giver, taker = worker(), worker()
    giver.step(["a"] * 4, [1.0, 0, 0, 0], 0)
    delta = giver.take_delta()
    for _ in range(2):
        taker.merge(delta)
        giver.merge(HistoryDelta.from_bytes(delta.to_bytes()))
    taker.merge(delta.merge(delta))
    resumed = worker()
    resumed.load_state_dict(taker.state_dict())
    resumed.merge(delta)
    assert [completions(each) for each in (giver, taker, resumed)] == [4, 4, 4]


def test_copies_number_under_names_of_their_own():
    first, taker = worker(), worker()
    first.step(["a"], [1.0], 0)
    second, third = copy.deepcopy(first), worker()
    third.load_state_dict(first.state_dict())
    for each in (first, second, third):
        each.step(["b"], [1.0], 1)
        taker.merge(each.take_delta())
    assert completions(taker) == 4


def test_numbers_that_were_sent_before_an_estimator_was_rolled_back_are_not_given_again():
    """Under one name, the second delta would have the number of the first, and would be lost."""
    giver, taker = worker(), worker()
    giver.step(["a"], [1.0], 0)
    before = giver.state_dict()
    for prompt in ("sent and rolled back", "recorded since"):
        giver.step([prompt], [1.0], 1)
        taker.merge(giver.pending_delta())
        giver.load_state_dict(before)
    assert completions(taker) == 3


def test_pending_deltas_of_older_states_get_a_number():
    old, taker = worker(), worker()
    old.step(["a"], [1.0], 0)
    state = old.state_dict()
    for name in ("origins", "part"):
        del state["pending"][name]
    del state["received"]
    resumed = worker()
    resumed.load_state_dict(state)
    for _ in range(2):
        taker.merge(resumed.pending_delta())
    assert completions(taker) == 1


@pytest.mark.parametrize("fails", [(), (0,), (1,)])
def test_a_failed_exchange_loses_nothing(fails, monkeypatch):
    first, second = worker(), worker()
    first.step(["a"] * 4, [1.0, 0, 0, 0], 0)
    calls = iter(range(9))

    def others(content, group):
        """The second rank has what the first sends, and its numbers."""
        call = next(calls)
        if call in fails:
            raise RuntimeError("timed out")
        if call == (0 if not fails else fails[0] + 1) or (fails == (1,) and call == 0):
            second.merge(*all_gather._unpacked(content))
            return [all_gather._packed([worker().pending_delta()])]
        return [all_gather.dump_state({"received": {"0": second.received.plain()}})]

    monkeypatch.setattr(all_gather, "_of_others", others)
    for _ in fails:
        with pytest.raises(RuntimeError, match="timed out"):
            all_gather.exchange(first)
        assert len(first.pending_delta()) == 1
    all_gather.exchange(first)
    assert len(first.pending_delta()) == 0 and completions(second) == 4


def test_the_actors_state_comes_back_and_says_so(tmp_path):
    path, giver = tmp_path / "state", worker()
    actor = SavedEstimator("kae", bandwidth=10, path=path, every=2)
    giver.step(["a"] * 4, [1.0, 0, 0, 0], 0)
    assert actor.resumed() is None and actor.merge(giver.pending_delta()) == []
    giver.step(["b"] * 2, [1.0, 0], 1)
    in_file = actor.merge(giver.pending_delta())
    giver.acknowledge(in_file)
    assert len(in_file) == 2 and len(giver.pending_delta()) == 0
    giver.step(["a"], [1.0], 2)
    actor.merge(giver.pending_delta())
    again = SavedEstimator("kae", bandwidth=10, path=path, every=2)
    assert "after step 1" in str(again.resumed()) and completions(again.estimator) == 6
    for _ in range(3):
        again.merge(giver.pending_delta())
    assert completions(again.estimator) == 7
    np.testing.assert_array_equal(again.predict(["a"], 3).value, actor.predict(["a"], 3).value)
    with pytest.raises(ValueError, match=re.escape("'kae', bandwidth=10") + ".*'kae_eb'"):
        SavedEstimator("kae_eb", path=path, every=2)
    with pytest.raises(ValueError, match="every"):
        SavedEstimator(every=0)


@pytest.mark.parametrize("every", [1, 2])
def test_a_call_whose_state_cannot_be_written_may_be_repeated_and_counts_once(tmp_path, monkeypatch, every):
    actor = SavedEstimator("kae", bandwidth=10, path=tmp_path / "state", every=every)
    if every == 2:
        actor.observe(["b"], [1.0], 0)

    def full(*arguments):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ray_actor, "save_state", full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                actor.observe(["a"], [1.0], 0)
    actor.observe(["a"], [1.0], 0)
    again = SavedEstimator("kae", bandwidth=10, path=tmp_path / "state", every=every)
    assert completions(actor.estimator) == completions(again.estimator) == every


def test_faulty_deliveries_equal_the_serial_run(tmp_path, monkeypatch):
    """The rest of some ten thousand: ``python -m tests.helpers.faulty_deliveries``."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    unequal, faults = [], 0
    for seed, kind in enumerate(KINDS[::5]):
        equal, found = schedule(seed, tmp_path / str(seed), kind)
        unequal += [] if equal else [(seed, kind)]
        faults += found
    assert not unequal
    assert faults > 200
