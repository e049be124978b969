"""The warnings of a history that is of no use: early, once, right about the cause, and never where it is of use."""

import warnings

import numpy as np
import pytest

from kaestat import AdvantageEstimator, make_baseline
from kaestat.estimator.reach import ENOUGH_RETURNS, STEPS_WITHOUT_RETURN, reached


def train(epoch, *, method="kae", steps=400, per_step=4, shuffle=False, estimator=None, start=0, **params):
    """Train on ``epoch * per_step`` prompts; returns the warnings as (step, text)."""
    estimator = AdvantageEstimator(method, **params) if estimator is None else estimator
    rng, found = np.random.default_rng(0), []
    order = np.arange(epoch * per_step)
    for step in range(start, start + steps):
        if shuffle and step % epoch == 0:
            rng.shuffle(order)
        prompts = order[(step % epoch) * per_step : (step % epoch + 1) * per_step]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.step([f"p{k}" for k in prompts for _ in range(2)], rng.integers(0, 2, 2 * per_step), step)
        found += [(step, str(warning.message)) for warning in caught]
    return found


@pytest.mark.parametrize(("epoch", "wide"), [(12, 36), (60, 180), (99, 300)])
@pytest.mark.parametrize("method", ["kae", "kae_eb"])
def test_returns_beyond_the_bandwidth_are_told_once_and_early_with_a_bandwidth_that_reaches(epoch, wide, method):
    ((step, text),) = train(epoch, method=method, bandwidth=10)
    assert epoch < step <= epoch + ENOUGH_RETURNS / 4
    assert text.startswith(f"{method}: prompts return about every {epoch} steps; bandwidth 10 reaches hardly any")
    assert f"use about {wide}" in text and "prompt_ids" not in text
    assert train(epoch, method=method, bandwidth=wide) == []


def test_long_epochs_are_not_put_down_to_unstable_ids_alone():
    (first, text), (second, told) = train(150, bandwidth=10)
    assert first == STEPS_WITHOUT_RETURN - 1 and "If an epoch is longer than that" in text
    assert 150 < second < 180 and "return about every 150 steps" in told and "use about 450" in told
    assert train(150, bandwidth=450)[1:] == []
    estimator = AdvantageEstimator("kae")
    with pytest.warns(UserWarning, match="change from visit to visit") as caught:
        for step in range(3 * STEPS_WITHOUT_RETURN):
            estimator.step([f"uid-{step}"], [1.0], step)
    assert len(caught) == 1 and caught[0].filename == __file__


@pytest.mark.parametrize(
    ("epoch", "params", "warned"),
    [
        (60, {"bandwidth": 10, "shuffle": True}, 1),
        (8, {"bandwidth": 30, "shuffle": True}, 0),
        (60, {"bandwidth": 10, "kernel": "exponential"}, 1),
        (30, {"bandwidth": 10, "kernel": "exponential"}, 0),  # weight e^-3
        (12, {"method": "grpo"}, 0),
        (12, {"method": "kalman"}, 0),
        (12, {"bandwidth": "rate"}, 0),
        (12, {"bandwidth": 13}, 0),
    ],
)
def test_one_warning_where_the_history_usually_reaches_nothing_and_none_elsewhere(epoch, params, warned):
    assert len(train(epoch, **params)) == warned


def test_a_visit_is_reached_while_its_weight_is_more_than_a_hundredth_of_that_now():
    lag = np.array([1.0, 9.8, 9.95, 10.0, 46.0, 46.1])
    assert reached(make_baseline("kae", bandwidth=10), lag).tolist() == [True, True, False, False, False, False]
    exponential = make_baseline("kae", bandwidth=10, kernel="exponential")  # e^-4.6 = .01005
    assert reached(exponential, lag).tolist() == [True, True, True, True, True, False]
    assert reached(make_baseline("kalman"), lag).all() and not reached(make_baseline("rloo"), lag).any()
