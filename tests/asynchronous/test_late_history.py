"""What a history keeps for visits that come late: all that a value as of their step looks back on, and little more."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat.asynchronous.delta import HistoryDelta
from kaestat.asynchronous.late_history import LateHistory

KEYS = ["a", "b", "c"]
horizons = st.sampled_from([0.5, 1.0, 2.5, 3.0, 8.0, math.inf])
limits = st.sampled_from([1, 2, 5, math.inf])
allowances = st.sampled_from([0, 1, 4, 9])
seeds = st.integers(0, 2**32 - 1)


def delta_of(visits, now):
    """Visits (key, step) with one completion each, whose reward tells the step."""
    row, step = (np.array(column, dtype=np.intp) for column in zip(*visits, strict=True))
    sums = {"count": np.ones(len(row)), "total": step * 1.0, "total_sq": step**2.0}
    return HistoryDelta(KEYS, row, step, sums, now)


def arrivals(seed, late, n_steps=40):
    """For each step what comes at it, (row, version) each: completions of versions up to ``late`` steps before."""
    rng = np.random.default_rng(seed)
    at = [[] for _ in range(n_steps)]
    for version in range(n_steps):
        for row in np.flatnonzero(rng.random(len(KEYS)) < [0.2, 0.6, 1.0]):
            for _ in range(rng.integers(1, 3)):
                at[min(version + rng.integers(0, late + 1), n_steps - 1)].append((int(row), version))
    return at


def looked_back_on(arrived, row, version, horizon, most):
    """By hand: the visits that a value as of a version looks back on, with their counts; and those at it."""
    counts = Counter(step for key, step in arrived if key == row)
    past = sorted(step for step in counts if 0 < version - step <= horizon)
    return {step: counts[step] for step in (*past[-min(most, 10**6) :], version) if step in counts}


def shown(history, row, version):
    visits = history.visits_known(history.rows([KEYS[row]]), np.array([version]))
    here = visits.count[0] > 0
    np.testing.assert_array_equal(visits.total[0], (version - visits.lag[0]) * visits.count[0])
    return dict(zip((version - visits.lag[0][here]).astype(int).tolist(), visits.count[0][here].tolist(), strict=True))


@given(seed=seeds, horizon=horizons, most=limits, late=allowances)
def test_a_completion_within_the_allowance_finds_all_that_it_would_have_found_in_order(seed, horizon, most, late):
    history, arrived = LateHistory(horizon, max_visits=most, late=late), []
    stop = np.random.default_rng(seed).integers(40)
    for now, visits in enumerate(arrivals(seed, late)):
        for part in {visit: [visit] * visits.count(visit) for visit in visits}.values():
            for visit in part:  # one by one: a visit that is there already grows
                history.add(delta_of([visit], now))
                arrived.append(visit)
        if now == stop:
            history = LateHistory.from_state_dict(history.state_dict(), late=late)
        for version in range(max(history.last_step - late, 0), history.last_step + 1):
            for row in range(len(KEYS)):
                assert shown(history, row, version) == looked_back_on(arrived, row, version, horizon, most)
    if horizon < math.inf:
        assert history.width <= 1.25 * (math.ceil(horizon) + late + 2)
    if most < math.inf:
        assert history.width <= 1.25 * (most + late + 3)


@given(seed=seeds, horizon=horizons, most=limits, late=allowances)
def test_what_is_kept_does_not_depend_on_the_order_in_which_it_came(seed, horizon, most, late):
    visits = sorted({visit for part in arrivals(seed, 0) for visit in part})
    in_order, mixed = (LateHistory(horizon, max_visits=most, late=late) for _ in range(2))
    for visit in visits:
        in_order.add(delta_of([visit], visit[1]))
    for place in np.random.default_rng(seed).permutation(len(visits)):
        mixed.add(delta_of([visits[place]], visits[place][1]))
    kept = [
        {(delta.keys[row], step) for row, step in zip(delta.row.tolist(), delta.step.tolist(), strict=True)}
        for delta in (in_order.as_delta(), mixed.as_delta())
    ]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("late", [-1, 1.5, True, "3"])
def test_an_allowance_is_a_whole_number_of_steps(late):
    with pytest.raises(ValueError, match="late must be a whole number"):
        LateHistory(3, late=late)
