"""Steps in order give, bit for bit, what a loop over the baseline and its history gives without an estimator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, Groups, RewardHistory, Visits, make_baseline, methods
from kaestat.core.arrays import Array, visit_sums
from kaestat.estimator.scaling import SCALINGS
from tests.helpers.arrivals import run
from tests.helpers.estimators import PARAMETERS

CASES = [
    (name, weighted)
    for name in methods()
    if name not in PARAMETERS
    for weighted in (False, True)
    if (make_baseline(name).takes_weights if weighted else not make_baseline(name).needs_weights)
]


def by_prompt(part, weighted: bool) -> tuple[list[int], Groups, np.ndarray]:
    """Prompts in the order of their first completion, their groups, and where each completion stands."""
    keys = list(dict.fromkeys(part.ids.tolist()))
    rows = [np.flatnonzero(part.ids == key) for key in keys]
    widest = max(map(len, rows))
    place = np.array([[*row, *[-1] * (widest - len(row))] for row in rows])
    mask = place >= 0

    def packed(column: np.ndarray) -> np.ndarray:
        return np.where(mask, column[place], 0.0)

    weight = packed(part.weight) if weighted else None
    return keys, Groups(packed(part.reward), None if mask.all() else mask, weight, keys), place


def loop(name: str, steps, weighted: bool) -> list[np.ndarray]:
    """Values of each step by hand."""
    baseline, history, found = make_baseline(name), None, []
    carry = baseline.initial_carry()
    for step, part in enumerate(steps):
        keys, groups, place = by_prompt(part, weighted)
        visits = Visits.empty(groups)
        if baseline.horizon > 0:
            kept = {"max_visits": baseline.max_visits, "state_size": baseline.state_size}
            history = history or RewardHistory(baseline.horizon, weighted=weighted, **kept)
            visits = history.visits(keys, step)
        served = baseline.serve(groups, visits, step=step, carry=carry)
        if history is not None:
            history.append(keys, step, visit_sums(groups), served.state)
        carry = served.carry
        values = np.zeros(len(part))
        values[place[place >= 0]] = served.values[place >= 0]
        found.append(values)
    return found


@pytest.mark.parametrize(("name", "weighted"), CASES)
@given(seed=st.integers(0, 2**32 - 1))
def test_an_estimator_in_strict_order_gives_the_bits_of_the_loop(name, weighted, seed):
    steps, estimator = run(seed, 9, binary=not weighted), AdvantageEstimator(name, scale="none")
    for step, (part, values) in enumerate(zip(steps, loop(name, steps, weighted), strict=True)):
        weights = {"weights": part.weight} if weighted else {}
        advantages = estimator.step(part.ids, part.reward, step, **weights)
        np.testing.assert_array_equal(estimator.values, values)
        np.testing.assert_array_equal(advantages, part.reward - values)


@pytest.mark.parametrize("scale", SCALINGS)
def test_and_scales_advantages_as_the_function_does(scale):
    steps, estimator = run(0, 5), AdvantageEstimator("rloo", scale=scale)
    for step, part in enumerate(steps):
        _, groups, place = by_prompt(part, weighted=False)
        plain: Array = groups.reward - make_baseline("rloo").values(groups, Visits.empty(groups), step=step)
        expected = np.zeros(len(part))
        expected[place[place >= 0]] = SCALINGS[scale](plain, groups)[place >= 0]
        np.testing.assert_array_equal(estimator.step(part.ids, part.reward, step), expected)
