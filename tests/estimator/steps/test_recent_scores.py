"""Scores of recent steps follow from the visits alone, and only those that a late visit can change are made anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, Prior, make_baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.estimator.steps import recent_scores
from kaestat.estimator.steps.recent_scores import WINDOW, RecentScores, scores_before
from tests.helpers.arrivals import run

IDS = np.repeat(np.arange(6), 4)


def rewards_of(seed: int, n_steps: int, binary: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    reward = rng.random((n_steps, 6, 4))
    return ((reward < rng.random((1, 6, 1))).astype(float) if binary else reward).reshape(n_steps, 24)


def after_steps(rewards: np.ndarray, **options) -> AdvantageEstimator:
    estimator = AdvantageEstimator("kae_eb", order="any", **options)
    for step, reward in enumerate(rewards):
        estimator.step(IDS, reward, step)
    return estimator


@pytest.fixture
def scored(monkeypatch) -> list[int]:
    """Steps whose scores are computed from the sums of their visits."""
    steps, compute = [], KernelBaseline.scores

    def spied(self, groups, visits, *, step):
        steps.append(step)
        return compute(self, groups, visits, step=step)

    monkeypatch.setattr(KernelBaseline, "scores", spied)
    return steps


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", ["kae", "kae_eb", "local_linear"])
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_sums_of_visits_give_the_scores_that_the_completions_gave(name, binary, seed):
    estimator = AdvantageEstimator(name, bandwidth="auto", order="any")
    for step, part in enumerate(run(seed, 8, binary=binary)):
        estimator.step(part.ids, part.reward, step)
    kept, columns = estimator.held.state.scores, estimator.history.columns
    again = RecentScores.of(columns)
    scores_before(estimator.baseline, columns, again, 8)
    assert again.steps == kept.steps and len(kept.found) == 8
    for step, scores in kept.found.items():
        for part, numbers in scores.items():
            np.testing.assert_allclose(again.found[step][part], numbers, rtol=1e-9, atol=1e-9)


def test_joined_scores_are_discounted_by_the_returns_of_the_prompts_since():
    """Against the recursion of a run in order, one step at a time; the third step has no prompt with a past."""
    running = make_baseline("kae", bandwidth="auto").selector.running
    rng, scores, loss, number = np.random.default_rng(0), [], 0.0, 0.0
    for step, count, pace in ((3, 8.0, 1.0), (4, 6.0, 0.5), (9, 0.0, 1.0), (11, 4.0, 0.25)):
        of_step = rng.random(len(running.candidates)) * (count > 0)
        last = float(step) if count else -1.0
        scored = np.array([count, count / 2, float(step), last, 2.0 if count else -1.0])
        scores.append({"loss": of_step, "scored": scored, "pace": np.asarray(pace)})
    for step, kept in ((0, 1.0), (1, 0.7**0.5), (3, 0.7 ** (7 * 0.25))):
        loss, number = kept * loss + scores[step]["loss"], kept * number + scores[step]["scored"][0]
    found = running.joined(scores)
    np.testing.assert_allclose(found["loss"], loss, rtol=1e-12)
    np.testing.assert_allclose(found["scored"], [number, number / 2, -1, 11, 2], rtol=1e-12)
    fresh = running.joined([])
    assert all(np.array_equal(fresh[name], array) for name, array in running.initial_carry().items())


def test_a_run_in_order_computes_no_scores_a_second_time_and_a_late_visit_those_from_its_step_on(scored):
    rewards = rewards_of(0, 25)
    estimator = after_steps(rewards)
    assert scored == []
    estimator.observe([2], [1.0], 24, version=[21])
    estimator.step(IDS, rewards[0], 25)
    assert scored == [21, 22, 23, 24]
    estimator.predict([1, 2], 26)
    assert scored == [21, 22, 23, 24]


def test_values_follow_those_of_strict_order():
    """Only what is left of steps before the window differs: .7 to the power of 16 of their scores."""
    rewards = rewards_of(2, 40)
    strict, free = AdvantageEstimator("kae_eb"), AdvantageEstimator("kae_eb", order="any")
    for step, reward in enumerate(rewards):
        for estimator in (strict, free):
            estimator.step(IDS, reward, step)
        np.testing.assert_allclose(free.values, strict.values, atol=0.01 if step > WINDOW else 1e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_what_others_recorded_changes_scores_from_its_first_step_on(weighted):
    rng = np.random.default_rng(3)
    rewards, weights = rewards_of(3, 20), rng.gamma(2.0, size=(20, 24))
    one, other, whole = (AdvantageEstimator("kae_eb", order="any", keep_deltas=True) for _ in range(3))
    for step, (reward, weight) in enumerate(zip(rewards, weights, strict=True)):
        first = IDS < (6 if step < 14 else 3)
        for estimator, part in ((one, first), (other, ~first), (whole, first | ~first)):
            given = {"weights": weight[part]} if weighted else {}
            estimator.step(IDS[part], reward[part], step, **given)
    kept = set(one.held.state.scores.found)
    one.merge(other.take_delta())
    assert set(one.held.state.scores.found) == {step for step in kept if step < 14}
    found, wanted = (estimator.predict(range(6), 20).value for estimator in (one, whole))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


def test_a_prior_in_the_middle_of_a_run_changes_scores():
    estimators = [after_steps(rewards_of(4, 20)) for _ in range(2)]
    prior = Prior.of_rates([0, 3], [0.1, 0.9], [400, 400], step=2)
    for estimator in estimators:
        estimator.add_prior(prior)
    state = estimators[1].state_dict()
    state.pop("scores", None)
    estimators[1].load_state_dict(state)
    values = [estimator.predict(range(6), 20).value for estimator in estimators]
    np.testing.assert_array_equal(*values)


def test_other_baselines_have_nothing_to_learn():
    for method, options in (("kae", {"bandwidth": 5}), ("kalman", {})):
        estimator = AdvantageEstimator(method, order="any", **options)
        estimator.step(["a", "a"], [1.0, 0.0], 0)
        assert estimator.held.state.scores is None and "scores" not in estimator.state_dict()
        assert recent_scores.kept_visits(estimator.baseline, 3) == estimator.baseline.max_visits
    assert RecentScores.of_plain({}, make_baseline("kalman"), ()) is None


def test_a_step_without_a_past_has_scores_that_count_for_nothing():
    estimator = AdvantageEstimator("kae", order="any")
    estimator.step(["a", "a"], [1.0, 0.0], 0)
    (scores,) = estimator.held.state.scores.found.values()
    assert scores["scored"].tolist() == [0.0, 0.0, 0.0, -1.0, -1.0] and not scores["loss"].any()
