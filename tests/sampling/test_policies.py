"""The published rules, by hand and against slow references."""

import math

import numpy as np
import pytest

from kaestat.estimator.prediction import Population, Prediction
from kaestat.sampling import POLICIES, Ask, live_groups

POPULATION = Population(n_prompts=9, mean=0.5, spread=0.08, noise=0.17, drift=0.0, sums=(1.0, 1.0, 1.0))


def score(policy, values, budget=8.0, most=math.inf, memory=None, seed=0) -> np.ndarray:
    values = np.array(values, dtype=float)
    size, ones = len(values), np.ones(len(values))
    prediction = Prediction(list(range(size)), values, 20 * ones, 0.2 * ones, ones, True, POPULATION)
    rng = np.random.default_rng(seed)
    return POLICIES[policy].score(Ask(prediction, memory or {}, ones / size, ones, budget, most, 1, rng))


def memory_after(policy, visits, size=3):
    """What the sampler keeps of prompts after visits (prompt, completions, mean reward), one a step."""
    memory = {name: np.full(size, start) for name, start in POLICIES[policy].memory.items()}
    for prompt, count, mean in visits:
        POLICIES[policy].seen(memory, np.array([prompt]), np.array([float(count)]), np.array([float(mean)]))
    return memory


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("uniform", [1.0, 1.0, 1.0]),
        ("dapo", [1.0, 1.0, 1.0]),
        ("spo", [0.55, 0.05, 0.45]),
        ("learnability", [0.25, 0.0, 0.16]),
    ],
)
def test_scores_by_hand(policy, expected):
    np.testing.assert_allclose(3 * score(policy, [0.5, 1.0, 0.2]), expected)


def test_dapo_keeps_groups_with_both_right_and_wrong():
    assert live_groups(np.array([[1, 1, 1], [0, 1, 0], [0, 0, 0]])).tolist() == [False, True, False]


def test_near_half_takes_as_many_as_the_budget_is_enough_for_and_ties_by_chance():
    assert score("near_half", [0.1, 0.45, 0.9, 0.6], budget=4, most=2).tolist() == [0, 1, 0, 1]
    assert score("near_half", [0.1, 0.45, 0.9, 0.6], budget=1).tolist() == [0, 1, 0, 0]
    ties = [score("near_half", [0.3, 0.1 + 0.2, 0.7], budget=1, seed=seed).argmax() for seed in range(60)]
    assert min(np.bincount(ties)) > 5


def test_mopps_posteriors_decay_towards_the_prior_and_count_a_lone_completion():
    memory = memory_after("mopps", [(1, 8, 6 / 8)])
    assert memory["successes"].tolist() == [1, 7, 1] and memory["failures"].tolist() == [1, 3, 1]
    memory = memory_after("mopps", [(1, 8, 6 / 8), (1, 1, 1)])  # where the published code sets both to 8
    assert memory["successes"][1] == 0.5 * 7 + 0.5 + 1 and memory["failures"][1] == 2
    sure = {"successes": np.array([50.0, 98.0, 2.0]), "failures": np.array([50.0, 2.0, 98.0])}
    assert {int(score("mopps", [0.5] * 3, 1, 1, sure, seed).argmax()) for seed in range(50)} == {0}


def test_greso_counts_groups_in_a_row_and_adapts():
    memory = memory_after("greso", [(0, 8, 1)] * 3)
    assert memory["right"].tolist() == [3, 0, 0]
    assert memory["easy"][2] == pytest.approx(0.47) and memory["hard"][2] == pytest.approx(0.53)
    memory = memory_after("greso", [(0, 8, 1)] * 3 + [(0, 8, 7 / 8)])
    assert memory["right"].tolist() == [0, 0, 0] and memory["easy"][0] == pytest.approx(0.48)
    memory = memory_after("greso", [(1, 8, 0)])
    assert memory["wrong"].tolist() == [0, 1, 0] and memory["hard"][0] == pytest.approx(0.49)


def test_greso_skips_with_the_published_probability():
    """Of 4,000 draws, within five binomial standard errors."""
    half = np.full(3, 0.5)
    memory = {"right": np.array([0, 2, 0]), "wrong": np.array([0, 0, 20]), "easy": half, "hard": half}
    kept = np.mean([score("greso", half, memory=memory, seed=seed) > 0 for seed in range(4_000)], axis=0)
    expected = np.array([1.0, 0.25, 0.01])
    np.testing.assert_array_less(np.abs(kept - expected), 5 * np.sqrt(expected * (1 - expected) / 4_000) + 1e-12)


def test_pools_go_by_the_newest_group_alone():
    memory = memory_after("pools", [(0, 8, 2 / 8), (1, 8, 4 / 8), (2, 8, 1), (2, 8, 3 / 8), (1, 8, 7 / 8)], size=4)
    np.testing.assert_allclose(4 * score("pools", [0.5] * 4, memory=memory), [0.2, 0.2, 1.0, 1.0])


def value(n, p):
    return 0.0 if n == 0 else (1 - p**n - (1 - p) ** n) * p * (1 - p) ** 2


@pytest.mark.parametrize("seed", range(6))
def test_knapsack_is_within_one_prompt_of_dynamic_programming(seed):
    values = np.random.default_rng(seed).beta(0.6, 0.6, 12)
    found = score("knapsack", values, budget=40.0)
    assert found.sum() == pytest.approx(40)
    best = np.zeros(41)
    for p in values:
        best = np.array([max(best[b - n] + value(n, p) for n in range(b + 1)) for b in range(41)])
    grid = range(130)
    relaxed = [np.interp(n, grid, [value(k, p) for k in grid]) for n, p in zip(found, values, strict=True)]
    assert best[40] * 0.97 <= sum(relaxed) + 0.02
    assert sum(value(int(n), p) for n, p in zip(found, values, strict=True)) <= best[40] + 1e-12
    certain = score("knapsack", [0.0, 1.0, 0.5, 0.1], budget=10)
    assert certain[0] == certain[1] == 0 and certain[3] > 0
