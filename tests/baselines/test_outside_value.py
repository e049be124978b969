"""A value from outside: it follows the step, and what it says of prompts of which nothing else is known."""

from dataclasses import replace

import numpy as np
import pytest

from kaestat import AdvantageEstimator, Groups, Visits
from kaestat.baselines import KaeEb, OutsideValue
from tests.helpers.method_case import TRUTH, MethodCase
from tests.helpers.references import kae_eb

P = 40


def drawn(seed: int, size: int):
    rng = np.random.default_rng(seed)
    value = rng.beta(1.0, 1.0, P)
    return value, (rng.random((P, size)) < value[:, None]).astype(float)


@pytest.mark.parametrize("bandwidth", [5.0, "auto"])
def test_values_are_those_of_the_step_and_a_constant_added_to_all_changes_nothing(bandwidth):
    asked = []

    def outside(prompts, step):
        asked.append(step)
        return [0.1 * (prompt % 7) + 0.02 * step for prompt in prompts]

    one = AdvantageEstimator("outside_value", outside=outside, bandwidth=bandwidth)
    other = AdvantageEstimator("outside_value", outside=lambda p, s: np.array(outside(p, s)) + 0.4, bandwidth=bandwidth)
    for step in range(6):
        _, reward = drawn(step, 3)
        ids = np.repeat(np.arange(P), 3).tolist()
        found = one.step(ids, reward.ravel(), step)
        assert set(asked) <= set(range(step + 1)) and step in asked
        np.testing.assert_allclose(other.step(ids, reward.ravel(), step), found, atol=1e-9)


def test_right_and_wrong_answers_are_treated_alike():
    """Of rewards that are all 0, rounding decided which bandwidth had the lowest loss."""
    rewards, found = np.ones((7, P, 3)), []
    rewards[4:] = drawn(1, 3)[1]
    rewards[2, 3, 0] = 0
    for mirrored in (False, True):
        given = {k: 0.1 + 0.8 * ((k * 7919) % 13) / 13 for k in range(P)}
        outside = {k: 1 - v for k, v in given.items()} if mirrored else given
        estimator, values = AdvantageEstimator("outside_value", outside=outside), []
        for step, reward in enumerate(1 - rewards if mirrored else rewards):
            here = np.arange(P) % 3 != step % 3
            estimator.step(np.repeat(np.arange(P)[here], 3).tolist(), reward[here].ravel(), step)
            values.append(estimator.values)
        found.append(np.concatenate(values))
    np.testing.assert_allclose(found[1], 1 - found[0], atol=1e-9)


def test_prompts_of_which_nothing_else_is_known_are_predicted_at_the_outside_value_and_its_offset():
    values = {k: 0.05 * k for k in range(12)}
    estimator = AdvantageEstimator("outside_value", outside=values, bandwidth=5.0)
    ids = np.repeat(np.arange(10), 4).tolist()
    reward = np.clip(np.repeat([values[k] + 0.2 for k in range(10)], 4), 0, 1)
    estimator.step(ids, reward, 0)
    predicted = estimator.predict(list(range(12)), 1).value
    np.testing.assert_allclose(predicted[10:], [0.7, 0.75], atol=1e-9)


@pytest.mark.parametrize("bandwidth", [5.0, "auto"])
def test_completions_that_the_past_is_worth_are_counted_of_the_differences(bandwidth):
    """Along a run the value was subtracted twice."""
    value, reward = drawn(0, 3)
    lag = np.tile([3.0, 1.0], (P, 1))
    past = np.stack([drawn(1, 4)[1], drawn(2, 4)[1]], axis=1)
    outside, plain = OutsideValue(outside=value, bandwidth=bandwidth), KaeEb(bandwidth=bandwidth)
    carry = plain.initial_carry()
    found = outside.effective_completions(Groups(reward), Visits.of(lag, past), step=9, carry=carry)
    less = Groups(reward - value[:, None]), Visits.of(lag, past - value[:, None, None])
    np.testing.assert_allclose(found, plain.effective_completions(*less, step=9, carry=carry), rtol=1e-9)


def outside_value(case, *, outside, **params):
    """`kae_eb` of each reward less the given value of its prompt, and that value."""
    given = [outside[prompt] for prompt in case.prompts]
    less = replace(
        case,
        rewards=[[z - v for z in rewards] for rewards, v in zip(case.rewards, given, strict=True)],
        past=[
            [replace(visit, rewards=[z - v for z in visit.rewards]) for visit in visits]
            for visits, v in zip(case.past, given, strict=True)
        ],
    )
    return [[v + value for value in row] for row, v in zip(kae_eb(less, **params), given, strict=True)]


CASES = [
    MethodCase("outside_value", outside_value, {"outside": TRUTH, "bandwidth": 20.0}),
    MethodCase(
        "outside_value", outside_value, {"outside": TRUTH, "kernel": "exponential", "bandwidth": 5.0, "cold_start": 0.1}
    ),
]
