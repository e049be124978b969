"""A state with any part corrupted is refused by one ValueError and changes nothing, or is loaded and goes on."""

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kaestat import RewardHistory
from kaestat.asynchronous.delta import HistoryDelta
from kaestat.core.storage import pack_arrays, unpack_arrays
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.estimator.turns import TurnEstimator
from kaestat.sampling import PromptSampler
from tests.helpers.estimators import make

REMOVED = object()
PLAIN = (REMOVED, None, "x", True, -5, 10**400, 0.5, math.nan, [[1], "a", None], {})
NUMBERS = (math.nan, -math.inf, 1e300, 0.5, -1, 2**62, "x", np.datetime64("NaT"))
IDS, REWARDS = ["a", "a", 7, "b"], [1.0, 0.0, 0.5, 1.0]


def places(state: Any, before: tuple = ()) -> Iterator[tuple]:
    """Every path into nested dicts and lists."""
    for key, value in state.items() if isinstance(state, dict) else enumerate(state) if type(state) is list else ():
        yield (*before, key)
        yield from places(value, (*before, key))


def forgeries(value: Any) -> Iterator[Any]:
    """What may stand in place of a value; of an array, also other numbers and other shapes."""
    yield from PLAIN
    if isinstance(value, np.ndarray):
        yield from (np.full(value.shape, number) for number in NUMBERS)
        yield from (value.reshape(-1)[:1], value[None], np.ones((3, 1, 2), value.dtype), value.reshape(-1)[:0])


def corrupted(state: Any) -> Iterator[tuple[str, Any]]:
    for *outer, last in places(state):
        for forged in forgeries(reached(state, [*outer, last])):
            changed = copy.deepcopy(state)
            part = reached(changed, outer)
            if forged is REMOVED:
                del part[last]
            else:
                part[last] = forged
            yield f"{[*outer, last]}: {'removed' if forged is REMOVED else repr(forged)}", changed


def reached(state: Any, path: list) -> Any:
    for key in path:
        state = state[key]
    return state


def step(**columns):
    return lambda estimator, step: estimator.step(IDS, REWARDS, step, **columns)


def sampled(sampler, step):
    sampler.draw(step)
    sampler.observe(IDS, REWARDS, step)


WEIGHTS = [1.0, 2.0, 0.5, 1.0]
KINDS = {
    "a prior": (lambda: make("kae", prior={"a": (0.5, 8)}), step()),
    "weights": (lambda: make("kae"), step(weights=WEIGHTS)),
    "streams": (lambda: make("kae_stream"), step(stream_ids=[0, 0, 1, 1])),
    "any order": (lambda: make("kae_eb", order="any", keep_deltas=True), step()),
    "any order, weights": (lambda: make("kae", order="any"), step(weights=WEIGHTS)),
    **{name: (lambda name=name: make(name), step()) for name in ("kae_eb", "bayes_filter", "kalman", "ebpo")},
    "turns": (lambda: TurnEstimator("kae", turns=1), lambda e, step: e.step(IDS, [[r] for r in REWARDS], step)),
    "several rewards": (
        lambda: SeveralRewards({"right": make("spo")}),
        lambda e, step: e.step(IDS, np.array([REWARDS]).T, step),
    ),
    "a sampler": (lambda: PromptSampler(["a", "b", 7], 4), sampled),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.parametrize(("name", "n_steps"), [(name, n) for name in KINDS for n in (0, 3) if n or "prior" in name])
def test_states(name, n_steps):
    new, go_on = KINDS[name]

    def after(n):
        made = new()
        for number in range(n):
            go_on(made, number)
        return made

    for what, changed in corrupted(unpack_arrays(after(n_steps).state_dict())):
        made = after(int(n_steps > 0))
        before = repr(made.state_dict())
        if refused(made.load_state_dict, pack_arrays(changed), what):
            assert repr(made.state_dict()) == before, f"{what}: refused, and something is changed"
            continue
        try:
            with np.errstate(all="ignore"):
                go_on(made, 9)
        except ValueError:  # numbers that are each possible may be impossible together
            pass
        except Exception as error:
            raise AssertionError(f"{what}: taken over, and then {error!r}") from error


def refused(load, state, what):
    try:
        load(state)
    except ValueError as error:
        assert str(error).startswith(("state: ", "delta: ")), (what, error)
        return True
    except Exception as error:
        raise AssertionError(f"{what}: no refusal, but {error!r}") from error
    return False


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_histories_and_deltas(weights):
    estimator = make("kae", order="any", keep_deltas=True)
    for number in range(3):
        estimator.step(IDS, REWARDS, number, weights=weights)
    for load, state in (
        (RewardHistory.from_state_dict, estimator.history.state_dict()),
        (HistoryDelta.of_plain, estimator.take_delta().plain()),
    ):
        assert any([refused(load, changed, what) for what, changed in corrupted(state)])
