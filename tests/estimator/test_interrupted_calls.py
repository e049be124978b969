"""An interrupted call changes everything or nothing, and the same call again gives its result and counts once.

Interrupts come at lines (in the slow tier at every line, and at operations) of kaestat that a call runs.
"""

import copy
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kaestat
from kaestat import AdvantageEstimator, AsynchronousEstimator
from kaestat.estimator.changes import Call
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.integrations.shared.session import TrainerSession

QUICK = 12  # random places of a case in the quick suite, beside the last 20
IDS, REWARDS = ["a", "a", "b", "c", "c", "new"], [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]
SOURCE = str(Path(kaestat.__file__).parent)


class Places:
    """Counts the places of a call at which an interrupt may come, and interrupts it at one of them.

    Counting ends where the call is marked as finished: after that the call only returns, and Python looks for signals
    where functions begin, after calls of C code and where loops start again.

    at: Number of the place, from 0 on; -1 for none.
    operations: Whether each operation of the bytecode is a place, and not each line only.
    """

    def __init__(self, at: int = -1, *, operations: bool = False):
        self.at, self.operations, self.seen, self.over, self.ended = at, operations, 0, False, False

    def _trace(self, frame: Any, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        frame.f_trace_opcodes = self.operations
        if frame.f_code is Call.finish.__code__ and frame.f_locals["self"].finished:
            self.over = True
        if not self.over and event in ("line", "opcode", "call"):
            self.seen += 1
            if self.seen == self.at + 1:
                raise KeyboardInterrupt
        return self._trace

    def run(self, call: Callable[[], Any]) -> Any:
        """The call's result; None if it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return call()
        except KeyboardInterrupt:
            self.ended = True
            return None
        finally:
            sys.settrace(before)


def interrupted(call: Callable[[], Any], at: int, *, operations: bool = False) -> bool:
    """Run a call and interrupt it at a place; whether that ended it.

    It does not where the call has fewer places, and where a generator is closed: there Python passes over what is
    raised.
    """
    places = Places(at, operations=operations)
    places.run(call)
    return places.ended


@pytest.fixture(autouse=True)
def one_sender(monkeypatch):
    """Estimators number their deltas under one name, so that their states can be compared."""
    monkeypatch.setattr("kaestat.asynchronous.estimator.secrets.token_hex", lambda size: "sender")


def estimator_of(method: str, params: dict) -> AdvantageEstimator:
    """After steps that leave no room for another visit."""
    kind = AsynchronousEstimator if params.get("order") == "any" else AdvantageEstimator
    estimator = kind(method, **{name: value for name, value in params.items() if name != "order"})
    for step in range(3):
        estimator.step(["a", "a", "b"], [1.0, float(step == 1), 0.0], step)
    return estimator


def several() -> SeveralRewards:
    both = SeveralRewards.of("kae", ["right", "format"], bandwidth=10)
    both.step(["a", "b"], np.array([[1.0, 0.0], [0.0, 1.0]]), 0)
    return both


def watched(order: str) -> TrainerSession:
    return TrainerSession(estimator_of("kae", {"bandwidth": 10, "order": order}))


PARAMS = {"kae": {"bandwidth": 10}, "kae_eb": {}, "kalman": {}, "spo": {"rho": 0.9}, "bayes_filter": {}}
CASES = {
    f"{method} {order} {name}": (partial(estimator_of, method, params | {"order": order}), name)
    for method, params in PARAMS.items()
    for order in ("strict", "any")[: 1 if method == "bayes_filter" else 2]
    for name in ("step", "observe", "advantages")[: 3 if order == "any" else 2]
} | {
    "kae any, deltas kept": (
        partial(estimator_of, "kae", {"bandwidth": 10, "order": "any", "keep_deltas": True}),
        "step",
    ),
    "several rewards step": (several, "step"),
    "several rewards observe": (several, "observe"),
    "watched strict": (partial(watched, "strict"), "advantages"),
    "watched any": (partial(watched, "any"), "advantages"),
    "watched any observe": (partial(watched, "any"), "observe"),
}


def content(held) -> tuple:
    """The whole state, and the last values."""
    values = getattr(held, "values", None)
    return held.state_dict(), None if values is None else [np.asarray(each).tolist() for each in values]


def call_of(held, name: str):
    """The call that is interrupted."""
    if isinstance(held, SeveralRewards):
        return partial(getattr(held, name), IDS, np.stack([REWARDS, REWARDS[::-1]], axis=1), 3)
    if isinstance(held, TrainerSession):
        return partial(getattr(held, name), REWARDS, 3, prompts=IDS, ids=IDS)
    return partial(getattr(held, name), IDS, REWARDS, 3)


def listed(result) -> list:
    return [] if result is None else [np.asarray(each).tolist() for each in result]


def check_places(make, name: str, *, operations: bool = False, most: int | None = None) -> int:
    """Interrupt the call at ``most`` random places, or at every place; returns the number of trials."""
    fresh = make()
    before, whole, counted = content(fresh), copy.deepcopy(fresh), copy.deepcopy(fresh)
    result = listed(call_of(whole, name)())
    after, places = content(whole), Places(operations=operations)
    places.run(call_of(counted, name))
    assert content(counted) == after
    every, passed_over = np.arange(places.seen), 0
    if most is not None and most < len(every):
        late = every[-20:]  # the last places, where the state changes, are always among them
        every = np.union1d(late, np.random.default_rng(0).choice(every, most, replace=False))
    for at in every.tolist():
        held, where = copy.deepcopy(fresh), f"at place {at} of {places.seen}"
        if not interrupted(call_of(held, name), at, operations=operations):
            assert content(held) == after, f"passed over an interrupt {where}, and did not come to its end"
            passed_over += 1
            continue
        amid = content(held)
        assert amid[0] in (before[0], after[0]), f"torn {where}"
        if isinstance(held, AdvantageEstimator):
            assert amid in (before, after), f"torn {where}"
            resumed = make()
            resumed.load_state_dict(amid[0])
            assert resumed.state_dict() == amid[0]
        assert listed(call_of(held, name)()) == result, f"other advantages after an interrupt {where}"
        assert content(held) == after, f"counted twice, or lost, after an interrupt {where}"
    assert passed_over <= 2  # where generators are closed
    return len(every)


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_call_changes_all_or_nothing_and_a_retry_counts_once(case):
    assert check_places(*CASES[case], most=QUICK) >= QUICK


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_at_every_line_and_at_a_thousand_operations(case):
    check_places(*CASES[case])
    check_places(*CASES[case], operations=True, most=1000)


def at_the_end(estimator: AdvantageEstimator, rewards=REWARDS) -> AdvantageEstimator:
    """Interrupted after the step was recorded, and before its result was returned."""
    places = Places()
    places.run(partial(copy.deepcopy(estimator).step, IDS, rewards, 3))
    assert interrupted(partial(estimator.step, IDS, rewards, 3), places.seen - 1)
    assert estimator.last_step == 3
    return estimator


def any_order() -> AdvantageEstimator:
    return estimator_of("kae", {"bandwidth": 10, "order": "any"})


def test_a_finished_call_is_not_taken_for_an_interrupted_one():
    estimator = estimator_of("kae", {"bandwidth": 10})
    estimator.step(IDS, REWARDS, 3)
    with pytest.raises(ValueError, match="already recorded"):
        estimator.step(IDS, REWARDS, 3)

    estimator = any_order()
    for _ in range(3):
        estimator.observe(IDS, REWARDS, 3)
    assert estimator.history.visits(["b"], 4).count[0, -1] == 3


def test_after_a_retry_the_same_completions_again_are_new_ones():
    estimator = at_the_end(any_order())
    estimator.step(IDS, REWARDS, 3)
    assert estimator.history.visits(["b"], 4).count[0, -1] == 1
    estimator.step(IDS, REWARDS, 3)
    assert estimator.history.visits(["b"], 4).count[0, -1] == 2


@pytest.mark.parametrize("other", [{"rewards": REWARDS[::-1]}, {"step": 4}], ids=["rewards", "step"])
def test_a_call_with_another_argument_is_another_call(other):
    estimator = at_the_end(any_order())
    estimator.step(**{"prompt_ids": IDS, "rewards": REWARDS, "step": 3} | other)
    assert estimator.history.visits(["c"], 9).count.sum() == 4


def test_rewards_that_share_a_column_with_an_interrupted_call_are_refused_like_those_of_any_recorded_prompt():
    rewards, held, places = np.array([[1.0, 0.0], [0.0, 1.0]]), several(), Places()
    places.run(partial(copy.deepcopy(held).step, ["a", "b"], rewards, 1))
    assert interrupted(partial(held.step, ["a", "b"], rewards, 1), places.seen - 1)
    with pytest.raises(ValueError, match="already recorded"):
        held.step(["a", "b"], rewards * [1, 0], 1)


def test_rewards_that_the_user_changes_in_place_after_an_interrupt_are_others():
    rewards = np.array(REWARDS)
    estimator = at_the_end(any_order(), rewards)
    rewards[:] = 1 - rewards
    estimator.step(IDS, rewards, 3)
    visits = estimator.history.visits(["b"], 4)
    assert (visits.count[0, -1], visits.total[0, -1]) == (2, 1)


def test_a_warning_that_is_an_error_leaves_the_step_recorded_and_the_retry_is_known():
    estimator = AdvantageEstimator("kae", bandwidth=10, prior={"elsewhere": (0.5, 8)})
    expected = AdvantageEstimator("kae", bandwidth=10).step(IDS, REWARDS, 0).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="prior: the first step has 4 prompts, none with one"):
            estimator.step(IDS, REWARDS, 0)
        assert estimator.last_step == 0
        assert estimator.step(IDS, REWARDS, 0).tolist() == expected


def test_warnings_point_at_the_caller_of_several_rewards():
    both = SeveralRewards.of("kae", ["right", "format"], bandwidth=10, prior={"elsewhere": (0.5, 8)})
    with pytest.warns(UserWarning, match="prior: the first step has 1 prompt, none") as caught:
        both.step(["a"], np.array([[1.0, 0.0]]), 0)
    assert {warning.filename for warning in caught} == {__file__}
