"""The method that an estimator takes where none is named, and when another takes its place."""

import warnings

import pytest

from kaestat import AdvantageEstimator
from kaestat.baselines.registry import DEFAULT_METHOD, SECOND_METHOD

IDS, REWARDS = ["a", "a", "b", "b"], [1.0, 0.0, 1.0, 1.0]


def test_the_default_is_the_method_of_the_constant_and_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator = AdvantageEstimator()
        estimator.step(IDS, REWARDS, 0)
    assert estimator.method == DEFAULT_METHOD


def test_where_completions_have_weights_another_takes_over_audibly_and_is_that_method():
    estimator, named = AdvantageEstimator(), AdvantageEstimator(SECOND_METHOD)
    with pytest.warns(UserWarning, match=f"cannot serve here .completions come with weights.; '{SECOND_METHOD}'"):
        first = estimator.step(IDS, REWARDS, 0, weights=[1.0, 2.0, 1.0, 3.0])
    assert first.tolist() == named.step(IDS, REWARDS, 0, weights=[1.0, 2.0, 1.0, 3.0]).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = estimator.step(IDS, REWARDS, 1, weights=[1.0, 2.0, 1.0, 3.0])
    assert again.tolist() == named.step(IDS, REWARDS, 1, weights=[1.0, 2.0, 1.0, 3.0]).tolist()


def test_a_state_of_the_other_method_is_taken_over(tmp_path):
    estimator = AdvantageEstimator()
    with pytest.warns(UserWarning, match="cannot serve here"):
        estimator.step(IDS, REWARDS, 0, importance=[1.0, 0.5, 1.0, 2.0])
    resumed = AdvantageEstimator()
    resumed.load_state_dict(estimator.state_dict())
    estimator.save(tmp_path / "state")
    expected = estimator.step(IDS, REWARDS, 1, importance=[1.0, 0.5, 1.0, 2.0]).tolist()
    for other in (resumed, AdvantageEstimator.load(tmp_path / "state")):
        assert other.step(IDS, REWARDS, 1, importance=[1.0, 0.5, 1.0, 2.0]).tolist() == expected


def test_in_any_order_another_takes_over_audibly():
    with pytest.warns(UserWarning, match=f"order=.any..; '{SECOND_METHOD}' takes its place"):
        assert AdvantageEstimator(order="any").method == SECOND_METHOD


def test_weights_that_come_after_the_first_step_are_refused_as_ever():
    estimator = AdvantageEstimator()
    estimator.step(IDS, REWARDS, 0)
    with pytest.raises(ValueError, match="does not average rewards"):
        estimator.step(IDS, REWARDS, 1, weights=[1.0] * 4)
    assert estimator.method == DEFAULT_METHOD


def test_a_prior_is_kept_where_another_takes_over():
    estimator = AdvantageEstimator(prior={"a": (0.25, 8)})
    with pytest.warns(UserWarning, match="takes its place"):
        estimator.step(["b", "b"], [0.0, 1.0], 0, importance=[1.0, 1.0])
    assert estimator.predict(["a"], 1).effective_completions[0] > 0
