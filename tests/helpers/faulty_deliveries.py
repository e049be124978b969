"""Workers that send deltas, to an actor or to each other, over a network that drops, repeats and reorders; and crashes.

``python -m tests.helpers.faulty_deliveries FIRST LAST`` runs the schedules of a range of seeds: with each method in
turn, with weights where it takes them, and against a serial run in strict order and one in any order.
"""

import itertools
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from unittest.mock import patch

import numpy as np

from kaestat import AdvantageEstimator
from kaestat.history.delta import HistoryDelta
from kaestat.integrations.workers import all_gather
from kaestat.integrations.workers.ray_actor import SavedEstimator
from tests.helpers.arrivals import LEARNED, METHODS, WEIGHTED, Arrival, make, mixed, run, visits_of

N_STEPS, N_RANKS = 5, 3
KINDS = tuple(itertools.product(("actor", "ranks"), ("any", "strict"), (False, True), METHODS))


@dataclass(frozen=True)
class Setting:
    """A method, and what its completions have."""

    name: str = "kae"
    serial: str = "any"
    weighted: bool = False

    def worker(self) -> AdvantageEstimator:
        return make(self.name, order="any", keep_deltas=True)

    def columns(self, part: Arrival) -> dict:
        """Weights in eighths, so that their sums are exact in any order."""
        return {"weights": np.ceil(8 * part.weight) / 8} if self.weighted else {}

    def record(self, estimator, part: Arrival) -> None:
        estimator.observe(part.ids, part.reward, N_STEPS, version=part.version, **self.columns(part))

    def result(self, estimator: AdvantageEstimator, last: Arrival) -> tuple[dict, np.ndarray]:
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


def _with_an_actor(setting: Setting, rng, parts: list[Arrival], path: Path) -> tuple[list[AdvantageEstimator], int]:
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


def exchange(ranks: list[AdvantageEstimator], plan: list[int | None]) -> int:
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


def _among_ranks(setting: Setting, rng, parts: list[Arrival]) -> tuple[list[AdvantageEstimator], int]:
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


def main(first: int, last: int) -> None:
    unequal, faults = [], 0
    with patch.object(os, "fsync", lambda _: None):  # no machine stops here, and a disk takes most of the time
        for seed in range(first, last):
            with tempfile.TemporaryDirectory() as folder:
                equal, found = schedule(seed, Path(folder), KINDS[seed % len(KINDS)])
            faults += found
            if not equal:
                unequal.append(seed)
    print(f"seeds {first} to {last - 1}: {len(unequal)} unequal, {faults} drops and crashes", unequal[:9], flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
