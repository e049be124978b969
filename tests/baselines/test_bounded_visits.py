"""`kalman`, `sieve` and `spo` look back a bounded number of visits, beyond which a visit changes nothing that shows."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from kaestat import AdvantageEstimator, RewardHistory, make_baseline
from kaestat.core.arrays import Groups, Visits

FADING = {
    "kalman, default drift": ("kalman", {"reward_variance": 0.25}, 1e-9),
    "kalman, fast drift": ("kalman", {"drift_variance": 0.1, "reward_variance": 0.2}, 1e-9),
    "spo": ("spo", {}, 1e-14),
    "spo, fast forgetting": ("spo", {"rho": 0.5}, 1e-14),
}


def a_past(n_visits: int, *, most: int, seed: int) -> Visits:
    """Of three prompts: at every step; with gaps; and lone completions after large groups."""
    rng = np.random.default_rng(seed)
    lag = np.array([np.arange(n_visits), np.cumsum(rng.integers(1, 4, n_visits)), np.arange(n_visits)])[:, ::-1] + 1.0
    count = rng.integers(1, most, (3, n_visits)).astype(float)
    count[2] = np.where(np.arange(n_visits) < n_visits // 2, 100.0, 1.0)
    total = np.floor(rng.random((3, n_visits)) * (count + 1))
    total[:, : n_visits // 2] = count[:, : n_visits // 2]  # all right long ago
    return Visits(lag=lag, count=count, total=total, total_sq=total)


def newest(visits: Visits, n: int) -> Visits:
    columns = {field.name: getattr(visits, field.name) for field in fields(visits)}
    return replace(visits, **{name: a[:, -n:] for name, a in columns.items() if isinstance(a, np.ndarray)})


@pytest.mark.parametrize("case", FADING)
def test_visits_beyond_the_bound_change_no_value(case):
    method, params, tolerance = FADING[case]
    baseline = make_baseline(method, **params)
    bound = int(baseline.max_visits)
    past = a_past(2 * bound, most=9, seed=bound)
    group = Groups(np.array([[1.0, 0.0, 1.0]] * 3), prompt_ids=["a", "b", "c"])
    whole, cut = (baseline.values(group, visits, step=10_000) for visits in (past, newest(past, bound)))
    np.testing.assert_allclose(cut, whole, rtol=0, atol=tolerance)
    shorter = baseline.values(group, newest(past, bound // 8), step=10_000)
    assert np.abs(shorter - whole).max() > 1e3 * tolerance  # the bound is not far too wide


@pytest.mark.parametrize("params", [{"drift_variance": 0.0}, {"rho": 1.0}, {"rho_max": 1.0}])
def test_what_never_fades_is_kept(params):
    assert make_baseline("kalman" if "drift_variance" in params else "spo", **params).max_visits == math.inf


@pytest.mark.parametrize(
    ("method", "params"), [("spo", {"rho": 0.5}), ("kalman", {"drift_variance": 0.1, "reward_variance": 0.2})]
)
def test_a_history_stops_growing(method, params):
    bound = int(make_baseline(method, **params).max_visits)
    rng, ids = np.random.default_rng(0), ["a", "a", "b", "b"]
    estimator, everything = AdvantageEstimator(method, **params), RewardHistory(math.inf)
    for step in range(2 * bound):
        rewards = rng.integers(0, 2, 4).astype(float)
        estimator.step(ids, rewards, step)
        total = rewards.reshape(2, 2).sum(axis=1)
        everything.record(["a", "b"], step=step, count=np.full(2, 2.0), total=total, total_sq=total)
    assert estimator.history.width == bound < everything.width


def test_sieve_fits_the_newest_visits_alone():
    baseline = make_baseline("sieve")
    assert baseline.max_visits == 1024
    past = a_past(1100, most=9, seed=1)
    history = RewardHistory(math.inf, max_visits=baseline.max_visits)
    for column in range(1100):
        sums = {name: getattr(past, name)[:1, column] for name in ("count", "total", "total_sq")}
        history.record(["a"], step=column, **sums)
    assert history.width == 1024
    seen = history.visits(["a"], 1100)
    group = Groups(np.array([[1.0, 0.0]]), prompt_ids=["a"])
    expected = baseline.values(group, newest(first_prompt(past), 1024), step=1100)
    np.testing.assert_array_equal(baseline.values(group, seen, step=1100), expected)


def first_prompt(visits: Visits) -> Visits:
    columns = {field.name: getattr(visits, field.name) for field in fields(visits)}
    return replace(visits, **{name: a[:1] for name, a in columns.items() if isinstance(a, np.ndarray)})
