"""Deltas count once, however often and in whatever order they come, and none is lost."""

import copy
import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
from tests.helpers.arrivals import LEARNED, METHODS, WEIGHTED, Arrival, make, mixed, run, visits_of

N_STEPS, N_RANKS = 5, 3
KINDS = tuple(itertools.product(("actor", "ranks"), ("any", "strict"), (False, True), METHODS))


def worker() -> AsynchronousEstimator:
    return AsynchronousEstimator("kae", bandwidth=10, keep_deltas=True)


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
            second.merge(HistoryDelta.from_bytes(content))
            return [worker().pending_delta().to_bytes()]
        return [all_gather.dump_state({"received": second.received.plain()})]

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


@dataclass(frozen=True)
class Setting:
    """A method, and what its completions have."""

    name: str = "kae"
    serial: str = "any"
    weighted: bool = False

    def worker(self) -> AsynchronousEstimator:
        return make(self.name, order="any", keep_deltas=True)

    def columns(self, part: Arrival) -> dict:
        """Weights in eighths, so that their sums are exact in any order."""
        return {"weights": np.ceil(8 * part.weight) / 8} if self.weighted else {}

    def record(self, estimator, part: Arrival) -> None:
        estimator.observe(part.ids, part.reward, N_STEPS, version=part.version, **self.columns(part))

    def result(self, estimator: AsynchronousEstimator, last: Arrival) -> tuple[dict, np.ndarray]:
        """The visits, and the values of one more step."""
        visits = visits_of(estimator, N_STEPS)
        estimator.step(last.ids, last.reward, N_STEPS, **self.columns(last))
        return visits, np.asarray(estimator.values)

    def expected(self, steps: list[Arrival], last: Arrival) -> tuple[dict, np.ndarray]:
        """The result of one estimator that gets each step whole and in order."""
        serial = make(self.name, order=self.serial)
        for step, part in enumerate(steps):
            serial.step(part.ids, part.reward, step, **self.columns(part))
        return self.result(serial, last)

    def agree(self, found: tuple[dict, np.ndarray], expected: tuple[dict, np.ndarray]) -> bool:
        """Whether all visits are equal, and the values within rounding; learned bandwidths depend on the order."""
        learned = self.name in LEARNED and self.serial == "strict"
        return found[0] == expected[0] and (learned or np.allclose(found[1], expected[1], rtol=0, atol=1e-12))


def schedule(seed: int, folder: Path, kind: tuple = KINDS[0]) -> tuple[bool, int]:
    """Whether all histories equal that of the serial run, and the number of faults."""
    way, serial, weighted, name = kind
    setting = Setting(name, serial, weighted and name in WEIGHTED)
    *steps, last = run(seed, N_STEPS + 1, 4)
    parts = mixed(steps, seed)
    rng = np.random.default_rng([seed, 38])
    if way == "actor":
        found, faults = _with_an_actor(setting, rng, parts, folder / "actor")
    else:
        found, faults = _among_ranks(setting, rng, parts)
    expected = setting.expected(steps, last)
    return all(setting.agree(setting.result(each, last), expected) for each in found), faults


def _with_an_actor(setting: Setting, rng, parts: list[Arrival], path: Path) -> tuple[list[AsynchronousEstimator], int]:
    """The actor's estimator after workers have sent it all; workers and the actor crash and resume."""
    parts, every, faults = list(parts), int(rng.integers(1, 4)), 0
    workers = [setting.worker() for _ in range(2)]
    saved = [worker.state_dict() for worker in workers]

    def resumed_actor() -> SavedEstimator:
        method, options = METHODS[setting.name]
        return SavedEstimator(method, path=path, every=every, **options)

    actor = resumed_actor()
    sent: list[tuple[int, bytes]] = []
    answers: list[tuple[int, list]] = []
    for _ in range(80):
        which, what = int(rng.integers(2)), rng.random()
        if what < 0.25 and parts:
            setting.record(workers[which], parts.pop())
            saved[which] = workers[which].state_dict()  # a worker saves before it sends
        elif what < 0.33 and len(sent) < 6:
            delta = workers[which].pending_delta()
            held_up = frozenset(origin for origin in delta.origins if rng.random() < 0.3)
            sent.append((which, delta.without(held_up).to_bytes()))
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
            workers[which] = setting.worker()
            workers[which].load_state_dict(saved[which])
            faults += 1
    for content in (*(content for _, content in sent), *(worker.pending_delta().to_bytes() for worker in workers)):
        actor.merge(HistoryDelta.from_bytes(content))
    for part in parts:
        setting.record(actor.estimator, part)
    return [actor.estimator], faults


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
    for error in errors:
        if not isinstance(error, RuntimeError):
            raise error
    return len(errors)


def _among_ranks(setting: Setting, rng, parts: list[Arrival]) -> tuple[list[AsynchronousEstimator], int]:
    """All ranks after a last exchange; before it exchanges fail, and all ranks restart from a checkpoint."""
    left, faults = list(parts), 0
    ranks = [setting.worker() for _ in range(N_RANKS)]

    def checkpoint() -> tuple[list[dict], list[Arrival]]:
        return [rank.state_dict() for rank in ranks], list(left)

    kept = checkpoint()
    for _ in range(30):
        which, what = int(rng.integers(N_RANKS)), rng.random()
        if what < 0.4 and left:
            setting.record(ranks[which], left.pop(int(rng.integers(len(left)))))
        elif what < 0.75:
            plan = [(0, 1)[int(rng.integers(2))] if rng.random() < 0.2 else None for _ in ranks]
            faults += exchange(ranks, plan)
        elif what < 0.85:
            kept = checkpoint()
        elif what < 0.92:
            states, left = kept[0], list(kept[1])
            ranks, faults = [setting.worker() for _ in ranks], faults + 1
            for rank, state in zip(ranks, states, strict=True):
                rank.load_state_dict(state)
    for part in left:
        setting.record(ranks[0], part)
    exchange(ranks, [None] * N_RANKS)
    return ranks, faults


def test_faulty_deliveries_equal_the_serial_run(tmp_path, monkeypatch):
    """Other schedules, of which some ten thousand were run, come from other seeds."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    unequal, faults = [], 0
    for seed, kind in enumerate(KINDS[::5]):
        equal, found = schedule(seed, tmp_path / str(seed), kind)
        unequal += [] if equal else [(seed, kind)]
        faults += found
    assert not unequal
    assert faults > 200
