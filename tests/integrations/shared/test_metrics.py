"""The logged figures of a step, against exact expectations over all outcomes and hand-computed cases."""

import itertools

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.core.arrays import Groups
from kaestat.integrations.shared.metrics import step_metrics

IDS = ["a", "a", "a", "b", "b"]
CHANCES = np.array([0.3, 0.3, 0.3, 0.8, 0.8])


def estimator_with_past(method: str, **params) -> AdvantageEstimator:
    estimator = AdvantageEstimator(method, **params)
    estimator.step(IDS, [1.0, 0.0, 1.0, 1.0, 0.0], 0, stream_ids=[0] * 5)
    estimator.step(IDS[:3], [0.0, 0.0, 1.0], 2, stream_ids=[0] * 3)
    return estimator


def measured(estimator: AdvantageEstimator, ids, rewards, step, weights=None, streams=None) -> dict[str, float]:
    rewards = np.asarray(rewards, dtype=float)
    streams = [0] * len(ids) if streams is None else streams
    estimator.step(ids, rewards, step, stream_ids=streams, weights=weights)
    return step_metrics(estimator.record)


@pytest.mark.parametrize(
    "method", ["rloo", "kae", "kae_eb", "spo", "kae_stream", "grpo", "krpo", "reinforce++", "none"]
)
def test_integration_metrics_error_is_unbiased_for_the_squared_error_around_the_true_values(method):
    params = {"bandwidth": 5.0} if method.startswith("kae") else {}
    found = exact = 0.0
    for rewards in itertools.product([0.0, 1.0], repeat=len(IDS)):
        chance = np.where(np.array(rewards) == 1, CHANCES, 1 - CHANCES).prod()
        estimator = estimator_with_past(method, **params)
        found += chance * measured(estimator, IDS, rewards, 3)["error"]
        squares = (estimator.values - CHANCES) ** 2
        exact += chance * (squares[:3].mean() + squares[3:].mean()) / 2
    assert exact > 1e-3
    assert found == pytest.approx(exact, abs=1e-12)


def test_integration_metrics_ebpo_enters_with_the_carry_it_had_before_the_step():
    estimator = AdvantageEstimator("ebpo")
    estimator.step(["a", "a", "b", "b"], [1.0, 0.0, 1.0, 1.0], 0)
    rewards = np.array([[1.0, 0.0], [1.0, 0.0]])
    found = measured(estimator, ["c", "c", "d", "d"], rewards.reshape(-1), 1)["error"]
    carry = estimator.record.carry
    own = np.mean(estimator.baseline.own_derivative(Groups(rewards), None, step=1, carry=carry))
    loss = ((rewards.reshape(-1) - estimator.values) ** 2).mean()
    assert carry is not None and found == pytest.approx(loss - (1 - 2 * own) * 0.5)


def test_integration_metrics_effective_history_weighs_past_completions_by_the_kernel():
    estimator = AdvantageEstimator("kae", kernel="triangular", bandwidth=10.0)
    estimator.step(["a"] * 4, [1.0, 0.0, 0.0, 1.0], 0)
    estimator.step(["a"] * 2, [1.0, 0.0], 3)
    found = measured(estimator, ["a", "a", "b", "b"], [1.0, 0.0, 1.0, 1.0], 5)
    assert found["effective_history"] == pytest.approx((4 * 0.5 + 2 * 0.8 + 0) / 2)
    assert found["past_completions"] == 3.0 and found["known_prompts"] == 0.5


def test_integration_metrics_the_first_step_has_no_past():
    found = measured(AdvantageEstimator("kae_stream"), ["a", "a", "a"], [1.0, 0.0, 1.0], 0, streams=[0, 0, 1])
    assert (found["known_prompts"], found["past_completions"], found["effective_history"]) == (0.0, 0.0, 0.0)
    assert not {"known_prompts", "past_completions", "effective_history"} & set(
        measured(AdvantageEstimator("rloo"), ["a", "a"], [1.0, 0.0], 0)
    )
    spo = measured(AdvantageEstimator("spo"), ["a", "a"], [1.0, 0.0], 0)
    assert spo["past_completions"] == 0.0 and "effective_history" not in spo


def test_integration_metrics_weighted_values_are_measured_around_the_plain_value():
    weights = np.array([3.0, 1.0, 2.0])
    found = measured(AdvantageEstimator("rloo"), ["a"] * 3, [1.0, 0.0, 1.0], 0, weights=weights)
    values = np.array([2 / 3, 5 / 5, 3 / 4])
    assert found["error"] == pytest.approx(((np.array([1.0, 0.0, 1.0]) - values) ** 2).mean() - 1 / 3)


def test_integration_metrics_dead_groups_are_those_of_equal_rewards_among_groups_of_several():
    ids = ["a", "a", "b", "b", "b", "c"]
    found = measured(AdvantageEstimator("rloo"), ids, [1.0, 1.0, 0.0, 1.0, 0.0, 0.0], 0)
    assert found["dead_groups"] == 0.5  # a; c has one completion, and does not count
    assert "error" not in measured(AdvantageEstimator("none"), ["a", "b"], [1.0, 0.0], 0)
    assert found["nonzero_advantages"] == 0.5  # those of b
    assert "dead_groups" not in measured(AdvantageEstimator("none"), ["a", "b"], [1.0, 1.0], 0)


def test_integration_metrics_gradient_noise_by_hand_and_only_with_weights_and_leave_one_out_values():
    ids, rewards, weights = ["a", "a", "a", "b", "b"], [1.0, 0.0, 0.0, 1.0, 1.0], np.array([2.0, 1.0, 4.0, 3.0, 5.0])
    found = measured(AdvantageEstimator("none"), ids, rewards, 0, weights=weights)
    assert found["gradient_noise"] == pytest.approx((2.0 + 3.0 + 5.0) / 5)
    assert "gradient_noise" not in measured(AdvantageEstimator("none"), ids, rewards, 0)
    assert "gradient_noise" not in measured(AdvantageEstimator("opo"), ids, rewards, 0, weights=weights)
