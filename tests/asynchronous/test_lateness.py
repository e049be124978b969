"""Completions that come late are given the values that they would have had in order, also where the past is limited."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, AsynchronousEstimator
from kaestat.smoothing.selectors import Fixed
from tests.helpers.arrivals import LEARNED, METHODS, Arrival, make, run

seeds = st.integers(0, 2**32 - 1)
FIXED = [name for name in METHODS if isinstance(getattr(make(name).baseline, "bandwidth", None), Fixed | None)]
CHECKED = 6  # calls of a run, at random among its second half: every one is computed from scratch


def late_calls(steps: list[Arrival], late: int, seed: int) -> list[tuple[int, int, Arrival]]:
    """Arrival, version and completions of each call: parts of every step, late by up to ``late`` steps."""
    rng, calls = np.random.default_rng(seed), []
    for version, whole in enumerate(steps):
        part = rng.integers(0, 3, len(whole))
        for number in np.unique(part):
            calls.append((version + int(rng.integers(0, late + 1)), version, whole.part(part == number)))
    return sorted(calls, key=lambda call: call[0])


def from_scratch(name: str, before: list[tuple[int, int, Arrival]], call: tuple[int, int, Arrival]) -> np.ndarray:
    """Values of a call's completions had all that has come in of versions up to theirs come in order."""
    _, version, part = call
    estimator = make(name, order="any" if name in LEARNED else "strict")
    for step in range(version):
        past = [earlier for _, of, earlier in before if of == step]
        if past:
            estimator.step(np.concatenate([p.ids for p in past]), np.concatenate([p.reward for p in past]), step)
    group = [earlier.part(np.isin(earlier.ids, part.ids)) for _, of, earlier in before if of == version] + [part]
    estimator.step(np.concatenate([p.ids for p in group]), np.concatenate([p.reward for p in group]), version)
    return estimator.values[-len(part) :]


def check_calls(name: str, calls: list[tuple[int, int, Arrival]], seed: int, estimator: AdvantageEstimator) -> None:
    half = len(calls) // 2
    checked = half + np.random.default_rng(seed).choice(len(calls) - half, CHECKED, replace=False)
    for number, call in enumerate(calls):
        now, version, part = call
        estimator.step(part.ids, part.reward, now, version=np.full(len(part), version))
        if number in checked:
            wanted = from_scratch(name, calls[:number], call)
            np.testing.assert_allclose(estimator.values, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "late"), [*((name, None) for name in FIXED), ("kae", 0), ("kae_eb", 3), ("kae", 40)])
@settings(max_examples=4)
@given(seed=seeds)
def test_late_parts_have_the_values_of_the_run_in_order(name, late, seed):
    estimator = make(name, order="any", late=late)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # within the allowance nothing is said
        check_calls(name, late_calls(run(seed, 50), estimator.late, seed), seed, estimator)


def test_the_step_is_told_of_whose_values_have_less_of_a_past():
    estimator = AsynchronousEstimator("kae", bandwidth=20, late=5)
    for step in range(60):
        estimator.step(["a", "b"], [step % 2, 1.0], step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.step(["b"], [1.0], 59, version=[54])
        estimator.advantages(["b"], [1.0], 60, version=[54])
        estimator.observe(["b"], [1.0], 59, version=[3])
    with pytest.warns(UserWarning, match=r"kae: completions of step 40 came when step 59 .* late=19 or more"):
        estimator.step(["a", "b"], [1.0, 1.0], 59, version=[40, 57])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once
        estimator.step(["a"], [1.0], 59, version=[41])
    with pytest.warns(UserWarning, match="completions of step 30"):
        again = AsynchronousEstimator("kae", bandwidth=20, late=5)
        again.load_state_dict(estimator.state_dict())
        again.advantages(["a"], [1.0], 60, version=[30])


def test_how_late_is_right_where_nobody_says_and_where_somebody_does():
    assert AsynchronousEstimator("kae", bandwidth=50).late == 50
    assert AsynchronousEstimator("kae", bandwidth=4).late == 16
    assert AsynchronousEstimator("kae_eb").late == 64
    with pytest.raises(ValueError, match="late must be a whole number"):
        AsynchronousEstimator("kae", late=-1)


def test_a_state_of_the_other_kind_of_estimator_is_refused():
    strict, free = AdvantageEstimator("kae", bandwidth=5), AsynchronousEstimator("kae", bandwidth=5)
    for estimator in (strict, free):
        estimator.step(["a"], [1.0], 0)
    with pytest.raises(ValueError, match="load it into an AdvantageEstimator"):
        free.load_state_dict(strict.state_dict())
    with pytest.raises(ValueError, match="AsynchronousEstimator"):
        strict.load_state_dict(free.state_dict())
