"""An interrupted call has changed nothing, so the same call again gives its result, and counts once.

Interrupts come at lines (in the slow tier at every line, and at operations) of kaestat that a call runs.
"""

import copy
import dis
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kaestat
from kaestat import AdvantageEstimator
from kaestat.estimator.several_rewards import SeveralRewards
from tests.helpers.estimators import OF_EVERY_STATE

QUICK = 12  # random places of a case in the quick suite, beside the last 20
IDS, REWARDS = ["a", "a", "b", "c", "c", "new"], [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]
SOURCE = str(Path(kaestat.__file__).parent)
pytestmark = pytest.mark.usefixtures("one_sender")


class Places:
    """Counts the places of a call at which an interrupt may come, and interrupts it at one of them.

    Counting ends where the call only returns: Python looks for signals where functions begin, after calls of C code and
    where loops start again, and none of these is left.

    at: Number of the place, from 0 on; -1 for none.
    operations: Whether each operation of the bytecode is a place, and not each line only.
    """

    def __init__(self, at: int = -1, *, operations: bool = False):
        self.at, self.operations, self.seen, self.over, self.ended = at, operations, 0, False, False
        self.outermost: Any = None

    def _only_returns(self, frame: Any) -> bool:
        code = frame.f_code.co_code[frame.f_lasti :]
        names = [dis.opname[operation] for operation in code[:3:2]]
        return frame is self.outermost and (names[0] == "RETURN_CONST" or names[1:] == ["RETURN_VALUE"])

    def _trace(self, frame: Any, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        self.outermost = self.outermost or frame
        frame.f_trace_opcodes = self.operations
        if event in ("line", "opcode") and self._only_returns(frame):
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


def made(name: str):
    """After steps that leave no room for another visit."""
    estimator = OF_EVERY_STATE[name]()
    for step in range(3):
        rewards = np.array([1.0, float(step == 1), 0.0])
        estimator.step(["a", "a", "b"], np.stack([rewards] * 2, axis=1) if name == "several rewards" else rewards, step)
    return estimator


CASES = [
    (name, call)
    for name in OF_EVERY_STATE
    for call in ("step", "observe", "advantages")[: 3 if "any order" in name else 2]
]


def content(estimator) -> tuple:
    """The whole state, and the last values."""
    values = estimator.values
    return estimator.state_dict(), None if values is None else np.asarray(values).tolist()


def call_of(estimator, name: str):
    """The call that is interrupted."""
    rewards = np.stack([REWARDS, REWARDS[::-1]], axis=1) if isinstance(estimator, SeveralRewards) else REWARDS
    return partial(getattr(estimator, name), IDS, rewards, 3)


def check_places(name: str, call: str, *, operations: bool = False, most: int | None = None) -> int:
    """Interrupt the call at ``most`` random places, or at every place; returns the number of trials."""
    fresh = made(name)
    before, whole, places = content(fresh), copy.deepcopy(fresh), Places(operations=operations)
    result = places.run(call_of(whole, call))
    after, result = content(whole), None if result is None else result.tolist()
    every, passed_over = np.arange(places.seen), 0
    if most is not None and most < len(every):
        late = every[-20:]  # the last places, where the state changes, are always among them
        every = np.union1d(late, np.random.default_rng(0).choice(every, most, replace=False))
    for at in every.tolist():
        estimator, where = copy.deepcopy(fresh), f"at place {at} of {places.seen}"
        trial = Places(at, operations=operations)
        trial.run(call_of(estimator, call))
        if not trial.ended:  # Python passes over what is raised where a generator is closed
            assert content(estimator) == after, f"passed over an interrupt {where}, and did not come to its end"
            passed_over += 1
            continue
        assert content(estimator) == before, f"torn {where}"
        again = call_of(estimator, call)()
        assert (None if again is None else again.tolist()) == result, f"other advantages after an interrupt {where}"
        assert content(estimator) == after, f"counted twice, or lost, after an interrupt {where}"
    assert passed_over <= 2
    return len(every)


@pytest.mark.parametrize(("name", "call"), CASES)
def test_an_interrupted_call_changes_nothing_and_a_retry_counts_once(name, call):
    assert check_places(name, call, most=QUICK) >= QUICK


@pytest.mark.slow
@pytest.mark.parametrize(("name", "call"), CASES)
def test_at_every_line_and_at_a_thousand_operations(name, call):
    check_places(name, call)
    check_places(name, call, operations=True, most=1000)


@pytest.mark.parametrize("name", ["kae", "kae, any order", "several rewards"])
def test_a_write_that_was_interrupted_is_repeated_by_the_next_reader(name):
    estimator, whole = made(name), made(name)
    for each in (estimator, whole):
        call_of(each, "step")()
    expected, places = whole.state_dict(), Places()
    places.run(copy.deepcopy(estimator).state_dict)
    for at in range(places.seen):
        torn = copy.deepcopy(estimator)
        Places(at).run(torn.state_dict)
        assert torn.state_dict() == expected


def test_a_warning_that_is_an_error_leaves_the_step_to_be_made_again_and_points_at_the_caller():
    estimator = AdvantageEstimator("kae", bandwidth=10, prior={"elsewhere": (0.5, 8)})
    before = estimator.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="prior"):
            estimator.step(IDS, REWARDS, 0)
    assert estimator.state_dict() == before
    with pytest.warns(UserWarning, match="prior") as caught:
        found = estimator.step(IDS, REWARDS, 0)
    assert {warning.filename for warning in caught} == {__file__}
    np.testing.assert_array_equal(found, AdvantageEstimator("kae", bandwidth=10).step(IDS, REWARDS, 0))
