"""Deltas count once, however often and in whatever order they come, and none is lost."""

import copy
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AsynchronousEstimator, HistoryDelta
from kaestat.asynchronous import all_gather, ray_actor
from kaestat.asynchronous.ray_actor import SavedEstimator
from kaestat.asynchronous.received_deltas import Received
from tests.helpers.arrivals import METHODS, Arrival, make, mixed, run, visits_of

N_STEPS, N_RANKS = 5, 3


def worker(name: str = "kae") -> AsynchronousEstimator:
    return make(name, order="any", keep_deltas=True)


def completions(estimator) -> float:
    return float(estimator.history.fields["count"].sum())


@given(st.lists(st.integers(1, 12)))
def test_numbers_are_held_as_a_set_would_hold_them(numbers):
    received = Received().joined(("a", number) for number in numbers)
    received = Received.of_plain(received.plain())
    assert [n for n in range(1, 15) if ("a", n) in received] == sorted(set(numbers))
    gaps = {number for number in numbers if number - 1 not in numbers}
    assert len(received.plain().get("a", [])) == 2 * len(gaps)  # one range, however long the run
    assert ("b", 1) not in received and received.next_of("a") == ("a", max(numbers, default=0) + 1)


@pytest.mark.parametrize("ends", [3, [], [0, 1], [3, 1], [1, 2, 3], [1, 2, 3, 4], [1.0, 2.0]])
def test_corrupted_numbers_are_refused(ends):
    with pytest.raises(ValueError, match="received deltas"):
        Received.of_plain({"a": ends})


def test_a_delta_counts_once_in_others_and_in_the_sender():
    giver, taker, resumed = worker(), worker(), worker()
    giver.step(["a"] * 4, [1.0, 0, 0, 0], 0)
    delta = giver.take_delta()
    for _ in range(2):
        taker.merge(delta)
        giver.merge(HistoryDelta.from_bytes(delta.to_bytes()))
    taker.merge(delta.merge(delta))
    resumed.load_state_dict(taker.state_dict())
    resumed.merge(delta)
    assert [completions(each) for each in (giver, taker, resumed)] == [4, 4, 4]


def test_copies_and_estimators_that_were_rolled_back_number_under_names_of_their_own():
    """Under one name, the second delta would have the number of the first, and would be lost."""
    first, taker = worker(), worker()
    first.step(["a"], [1.0], 0)
    before, second, third = first.state_dict(), copy.deepcopy(first), worker()
    third.load_state_dict(before)
    for each in (first, second, third):
        each.step(["b"], [1.0], 1)
        taker.merge(each.take_delta())
    first.load_state_dict(before)
    first.step(["recorded since"], [1.0], 1)
    taker.merge(first.pending_delta())
    assert completions(taker) == 5


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
    assert "after step 1" in str(again.resumed()) and completions(again) == 6
    for _ in range(3):
        again.merge(giver.pending_delta())
    assert completions(again) == 7
    np.testing.assert_array_equal(again.predict(["a"], 3).value, actor.predict(["a"], 3).value)
    with pytest.raises(ValueError, match=re.escape("'kae', bandwidth=10") + ".*'kae_eb'"):
        SavedEstimator("kae_eb", path=path, every=2)
    with pytest.raises(ValueError, match="every"):
        SavedEstimator(every=0)


@pytest.mark.parametrize("every", [1, 2])
def test_a_call_whose_state_cannot_be_written_may_be_repeated_and_counts_once(tmp_path, monkeypatch, every):
    options = {"bandwidth": 10, "path": tmp_path / "state", "every": every, "prior": {"b": (0.5, 4)}}
    actor = SavedEstimator("kae", **options)
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
    again = SavedEstimator("kae", **options)
    assert completions(actor) == completions(again) == 4 + every


def record(estimator: AsynchronousEstimator, part: Arrival, weighted: bool) -> None:
    """Weights in eighths, so that their sums are exact in any order."""
    weights = np.ceil(8 * part.weight) / 8 if weighted else None
    estimator.observe(part.ids, part.reward, N_STEPS, version=part.version, weights=weights)


@pytest.mark.parametrize(
    ("way", "name", "weighted"),
    [("actor", "kae", True), ("actor", "spo", False), ("ranks", "kae_eb, learned", True), ("ranks", "kae", False)],
)
def test_faulty_deliveries_equal_the_serial_run(way, name, weighted, tmp_path, monkeypatch):
    """Other schedules, of which some ten thousand were run, come from other seeds."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    faults = 0
    for seed in range(5):
        steps, serial = run(seed, N_STEPS, 4), worker(name)
        for step in steps:
            record(serial, step, weighted)
        rng, parts = np.random.default_rng(seed), mixed(steps, seed)
        if way == "actor":
            estimators, found = with_an_actor(name, weighted, rng, parts, tmp_path / str(seed))
        else:
            estimators, found = among_ranks(name, weighted, rng, parts)
        faults += found
        for each in estimators:
            assert visits_of(each, N_STEPS) == visits_of(serial, N_STEPS), seed
            np.testing.assert_allclose(*(e.predict(range(4), N_STEPS + 1).value for e in (each, serial)), atol=1e-12)
    assert faults > 20


def with_an_actor(name, weighted, rng, parts: list[Arrival], path: Path) -> tuple[list[AsynchronousEstimator], int]:
    """The actor after workers have sent it all, and the number of faults; workers and the actor crash and resume."""
    every, faults = int(rng.integers(1, 4)), 0
    workers = [worker(name) for _ in range(2)]
    saved = [each.state_dict() for each in workers]

    def resumed_actor() -> SavedEstimator:
        method, options = METHODS[name]
        return SavedEstimator(method, path=path, every=every, **options)

    actor = resumed_actor()
    sent: list[tuple[int, bytes]] = []
    answers: list[tuple[int, list]] = []
    for _ in range(80):
        which, what = int(rng.integers(2)), rng.random()
        if what < 0.25 and parts:
            record(workers[which], parts.pop(), weighted)
            saved[which] = workers[which].state_dict()  # a worker saves before it sends
        elif what < 0.33 and len(sent) < 6:
            delta = workers[which].pending_delta()
            delayed = frozenset(origin for origin in delta.origins if rng.random() < 0.3)
            sent.append((which, delta.without(delayed).to_bytes()))
        elif what < 0.7 and sent:
            place = int(rng.integers(len(sent)))
            sender, content = sent[place]
            if rng.random() < 0.7:
                del sent[place]
            if rng.random() < 0.7:
                answers.append((sender, list(actor.merge(HistoryDelta.from_bytes(content)))))
            else:
                faults += 1
        elif what < 0.85 and answers:
            sender, origins = answers.pop(int(rng.integers(len(answers))))
            workers[sender].acknowledge(origins)
        elif what < 0.92:
            actor, faults = resumed_actor(), faults + 1
        elif what < 0.97:
            workers[which] = worker(name)
            workers[which].load_state_dict(saved[which])
            faults += 1
    for content in (*(content for _, content in sent), *(each.pending_delta().to_bytes() for each in workers)):
        actor.merge(HistoryDelta.from_bytes(content))
    for part in parts:
        record(actor, part, weighted)
    return [actor], faults


class Rank:
    """The group that a rank passes to `exchange`: its two all-gathers, one of which may fail."""

    def __init__(self, place: int, plan: list[int | None], slots: list[list], barriers: list[Barrier]):
        self.place, self.plan, self.slots, self.barriers, self.call = place, plan, slots, barriers, -1

    def gather(self, content: bytes) -> list[bytes]:
        self.call += 1
        if self.call == 1 and 0 in self.plan:
            raise RuntimeError("a rank has left before the second all-gather")
        self.slots[self.call][self.place] = content
        self.barriers[self.call].wait(60)
        if self.plan[self.place] == self.call:
            raise RuntimeError("timed out")
        return [each for place, each in enumerate(self.slots[self.call]) if place != self.place]


def exchange(ranks: list[AsynchronousEstimator], plan: list[int | None]) -> int:
    """The number of ranks whose exchange failed; the plan has for each rank the all-gather that fails in it."""
    slots, barriers = [[b""] * N_RANKS for _ in range(2)], [Barrier(N_RANKS) for _ in range(2)]
    groups = [Rank(place, plan, slots, barriers) for place in range(N_RANKS)]
    with (
        patch.object(all_gather, "_of_others", lambda content, group: group.gather(content)),
        ThreadPoolExecutor(N_RANKS) as pool,
    ):
        calls = [pool.submit(all_gather.exchange, *pair) for pair in zip(ranks, groups, strict=True)]
        errors = [error for call in calls if (error := call.exception()) is not None]
    assert all(isinstance(error, RuntimeError) for error in errors), errors
    return len(errors)


def among_ranks(name, weighted, rng, parts: list[Arrival]) -> tuple[list[AsynchronousEstimator], int]:
    """All ranks after a last exchange, and the number of exchanges that failed."""
    left, faults = list(parts), 0
    ranks = [worker(name) for _ in range(N_RANKS)]
    for _ in range(30):
        which, what = int(rng.integers(N_RANKS)), rng.random()
        if what < 0.4 and left:
            record(ranks[which], left.pop(int(rng.integers(len(left)))), weighted)
        elif what < 0.9:
            faults += exchange(ranks, [(0, 1)[int(rng.integers(2))] if rng.random() < 0.2 else None for _ in ranks])
    for part in left:
        record(ranks[0], part, weighted)
    exchange(ranks, [None] * N_RANKS)
    return ranks, faults
