"""The unit of rewards is the user's: values in any unit are those of zeros and ones, in that unit.

In most units sums are not exact, and 0, which stands in the padding, may be no reward. In a negative unit right answers
are wrong ones. Far from 0 squares of rewards have no digits left for their differences.
"""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, AsynchronousEstimator, make_baseline
from kaestat.baselines.registry import METHODS

PROMPTS = 12
FROM_0 = {"none", "krpo", "maxrl", "grpo_passk"}  # 0 is a value of its own, as published
BY_RANK = {"qae", "mc_grpo"}  # of an even group, one of the two middle rewards
UNITS = [(10.0, 0.0), (0.7, 0.1), (1.0, 5.0), (-1.1, 1.3), (1.0, 1e8), (1e-3, -1e5)]
UPWARDS = {"bayes_filter"}  # expects that prompts are learned
TOLERANCE = {"bayes_filter": 1e-5, "james_stein": 1e-3}  # in single precision; with an epsilon in the unit of rewards
GIVEN = np.linspace(0.05, 0.95, PROMPTS)


def a_run(seed: int, rate: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Ids, rewards and weights of each step: ragged groups of two or more of some of the prompts."""
    rng, steps = np.random.default_rng(seed), []
    for _ in range(9):
        ids = np.repeat(rng.permutation(PROMPTS)[: rng.integers(2, PROMPTS)], 2)
        ids = np.concatenate([ids, rng.choice(ids, len(ids) // 2)])
        reward = (rng.random(len(ids)) < rate[ids]).astype(float)
        steps.append((ids, reward, np.where(reward > 0, 1.0, 5.0) * rng.exponential(1, len(ids))))
    return steps


def values_in(name: str, steps: list, unit: float, zero: float, weighted: bool, kind: type) -> np.ndarray:
    """Values of a run, and predictions after it, in units from zero on."""
    params = {
        "outside_value": {"outside": lambda prompts, step: zero + unit * GIVEN[prompts]},
        "oracle": {"value": lambda prompts, step: zero + unit * GIVEN[prompts]},
        "remax": {"greedy": lambda prompts, step: zero + unit * (GIVEN[prompts] > 0.5)},
    }.get(name, {})
    if hasattr(METHODS[name].default, "low"):
        params = {"low": min(zero, zero + unit), "high": max(zero, zero + unit)}
    estimator, found = kind(name, scale="none", **params), []
    for step, (ids, reward, weight) in enumerate(steps):
        estimator.step(ids.tolist(), zero + unit * reward, step, weights=weight if weighted else None)
        found.append((estimator.values - zero) / unit)
    if estimator.baseline.horizon and not name.startswith(("local", "outside", "sieve")):  # cut at 0 and 1
        found.append((estimator.predict(list(range(PROMPTS)), len(steps)).value - zero) / unit)
    return np.concatenate(found)


@pytest.mark.parametrize("name", sorted(set(METHODS) - FROM_0))
def test_values_in_any_unit_of_rewards_are_those_of_zeros_and_ones(name):
    baseline = make_baseline(name)
    cases = [(weighted, AdvantageEstimator) for weighted in {baseline.needs_weights, baseline.takes_weights}]
    if not baseline.in_order_only and not baseline.needs_weights:
        cases.append((False, AsynchronousEstimator))
    for seed, rate in enumerate((np.linspace(0.1, 0.9, PROMPTS), np.where(np.arange(PROMPTS) == 3, 0.5, 1.0))):
        steps = a_run(seed, rate)
        for case in cases:
            expected = values_in(name, steps, 1.0, 0.0, *case)
            for unit, zero in UNITS:
                if (unit < 0 and name in BY_RANK | UPWARDS) or (unit < 0.1 and name == "james_stein"):
                    continue
                tolerance = max(TOLERANCE.get(name, 1e-7), 1e-6 * (abs(zero) > 1e3))
                found = values_in(name, steps, unit, zero, *case)
                np.testing.assert_allclose(found, expected, atol=tolerance, err_msg=f"{unit} {zero} {case} {seed}")
