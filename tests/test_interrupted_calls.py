"""A call that is interrupted leaves what it found or all that it was to leave, and the same call again is no second one.

Interrupts come at every line (in the slow tier at every operation) of kaestat that a call runs.
"""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.watched_estimator import WatchedEstimator
from kaestat.several_rewards import SeveralRewards
from kaestat.turn_estimator import TurnEstimator
from tests.helpers.interrupts import Places, interrupted

MOST_QUICK = 60  # places of a case in the quick suite
IDS, REWARDS = ["a", "a", "b", "c", "c", "new"], [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]
CASES = {
    f"{method} {order} {name}": (method, params | ({} if order == "strict" else {"order": "any"}), name)
    for method, params, orders in (
        ("kae", {"bandwidth": 10}, ("strict", "any")),
        ("kae_eb", {}, ("strict", "any")),
        ("kalman", {}, ("strict", "any")),
        ("spo", {"rho": 0.9}, ("strict", "any")),
        ("bayes_filter", {}, ("strict",)),
    )
    for order in orders
    for name in ("step", "observe", *(("advantages",) if order == "any" else ()))
}
CASES["kae any sent on"] = ("kae", {"bandwidth": 10, "order": "any", "keep_deltas": True}, "step")


def estimator_of(method: str, params: dict) -> AdvantageEstimator:
    """After steps that leave no room for another visit."""
    estimator = AdvantageEstimator(method, **params)
    for step in range(3):
        estimator.step(["a", "a", "b"], [1.0, float(step == 1), 0.0], step)
    return estimator


def content(held) -> tuple:
    """All that is known, and what was given last."""
    values = getattr(held, "values", None)
    return held.state_dict(), None if values is None else [np.asarray(each).tolist() for each in values]


def call_of(held, name: str):
    """The call that is interrupted."""
    if isinstance(held, TurnEstimator):
        return partial(getattr(held, name), ["a", "b"], [[1.0, 0.0, 1.0], [0.0, 1.0]], 3)
    if isinstance(held, SeveralRewards):
        return partial(getattr(held, name), IDS, np.stack([REWARDS, REWARDS[::-1]], axis=1), 3)
    if isinstance(held, WatchedEstimator):
        return partial(getattr(held, name), REWARDS, 3, prompts=IDS, ids=IDS)
    return partial(getattr(held, name), IDS, REWARDS, 3)


def listed(given) -> list:
    return [] if given is None else [np.asarray(each).tolist() for each in given]


def check_every_place(make, name: str, *, operations: bool = False, most: int | None = None) -> int:
    """Interrupt the call at every place of it, or at ``most``; returns how many."""
    fresh = make()
    before, whole, counted = content(fresh), copy.deepcopy(fresh), copy.deepcopy(fresh)
    given = listed(call_of(whole, name)())
    after, places = content(whole), Places(operations=operations)
    places.run(call_of(counted, name))
    assert content(counted) == after
    every = range(places.seen) if most is None else np.unique(np.linspace(0, places.seen - 1, most).astype(int))
    states = {"before": before, "after": after}
    for at in every:
        held = copy.deepcopy(fresh)
        assert interrupted(call_of(held, name), int(at), operations=operations)
        amid = content(held)
        assert amid[0] in (before[0], after[0]), f"torn at place {at} of {places.seen}"
        if isinstance(held, AdvantageEstimator):
            assert amid in states.values(), f"torn at place {at} of {places.seen}"
            resumed = make()
            resumed.load_state_dict(amid[0])
            assert resumed.state_dict() == amid[0]
        assert listed(call_of(held, name)()) == given, f"other advantages after place {at}"
        assert content(held) == after, f"counted twice, or not at all, after place {at}"
    return len(every)


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_call_leaves_all_or_nothing_and_is_known_again(case):
    method, params, name = CASES[case]
    assert check_every_place(partial(estimator_of, method, params), name, most=MOST_QUICK) == MOST_QUICK


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_at_every_line_and_at_a_thousand_operations(case):
    method, params, name = CASES[case]
    make = partial(estimator_of, method, params)
    check_every_place(make, name)
    check_every_place(make, name, operations=True, most=1000)


def several() -> SeveralRewards:
    both = SeveralRewards.of("kae", ["right", "format"], bandwidth=10)
    both.step(["a", "b"], np.array([[1.0, 0.0], [0.0, 1.0]]), 0)
    return both


def turns(order: str) -> TurnEstimator:
    estimator = TurnEstimator("kae", bandwidth=10, order=order)
    estimator.step(["a", "b"], [[1.0, 0.0], [0.0]], 0)
    return estimator


def watched(order: str) -> WatchedEstimator:
    return WatchedEstimator(estimator_of("kae", {"bandwidth": 10, "order": order}))


COMPOSED = {
    "several rewards": (several, "step"),
    "several rewards observed": (several, "observe"),
    "turns": (partial(turns, "strict"), "step"),
    "turns in any order": (partial(turns, "any"), "step"),
    "watched": (partial(watched, "strict"), "advantages"),
    "watched in any order": (partial(watched, "any"), "advantages"),
    "watched, observed": (partial(watched, "any"), "observe"),
}


@pytest.mark.parametrize("case", COMPOSED)
def test_so_does_one_of_what_is_made_of_estimators(case):
    check_every_place(*COMPOSED[case], most=MOST_QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPOSED)
def test_so_does_one_of_what_is_made_of_estimators_at_every_line(case):
    check_every_place(*COMPOSED[case])


@pytest.mark.parametrize("order", ["strict", "any"])
def test_a_call_that_came_to_its_end_is_not_taken_for_the_same_one_again(order):
    estimator = estimator_of("kae", {"bandwidth": 10, "order": order})
    estimator.step(IDS, REWARDS, 3)
    if order == "strict":
        with pytest.raises(ValueError, match="already recorded"):
            estimator.step(IDS, REWARDS, 3)
        return
    estimator.observe(IDS, REWARDS, 3)
    estimator.observe(IDS, REWARDS, 3)
    assert estimator.history.visits(["b"], 4).count[0, -1] == 3


def test_another_call_after_an_interrupted_one_is_recorded():
    estimator = estimator_of("kae", {"bandwidth": 10, "order": "any"})
    places = Places()
    places.run(call_of(copy.deepcopy(estimator), "step"))
    assert interrupted(call_of(estimator, "step"), places.seen - 1)
    estimator.step(IDS, REWARDS[::-1], 3)
    assert estimator.history.visits(["b"], 4).count[0, -1] == 2


def test_rewards_that_are_changed_in_place_after_an_interrupt_are_others():
    estimator, rewards = estimator_of("kae", {"bandwidth": 10, "order": "any"}), np.array(REWARDS)
    places = Places()
    places.run(partial(copy.deepcopy(estimator).step, IDS, rewards, 3))
    assert interrupted(partial(estimator.step, IDS, rewards, 3), places.seen - 1)
    rewards[:] = 1 - rewards
    estimator.step(IDS, rewards, 3)
    visits = estimator.history.visits(["b"], 4)
    assert (visits.count[0, -1], visits.total[0, -1]) == (2, 1)
