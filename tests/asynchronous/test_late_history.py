"""What a history keeps for visits that come late: all that a value as of their step looks back on, and little more."""

import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kaestat.asynchronous.delta import RecordedVisits
from kaestat.asynchronous.late_history import LateHistory

KEYS = ["a", "b", "c"]
horizons = st.sampled_from([0.5, 1.0, 2.5, 3.0, 8.0, math.inf])
limits = st.sampled_from([1, 2, 5, math.inf])
allowances = st.sampled_from([0, 1, 4, 9])
seeds = st.integers(0, 2**32 - 1)


def add(history, visit, now):
    """One completion of a prompt at a step, whose reward tells the step."""
    row, step = (np.array([number]) for number in visit)
    sums = {"count": np.ones(1), "total": step * 1.0, "total_sq": step**2.0}
    history.carry_out(history.added(RecordedVisits(KEYS, row, step, sums), now))


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
                add(history, visit, now)
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
