"""Gradient diagnostics: the paper's formula, and the companion that is free of the pool size."""

from itertools import permutations

import numpy as np
import pytest

from llm_experiments.diagnose.assumption6 import score_norm_summary, score_norm_table
from llm_experiments.diagnose.draws import Drawing
from llm_experiments.diagnose.estimators import make_estimator
from llm_experiments.diagnose.gradient_mse import (
    DEBIASED_PURPOSE,
    FLOORS,
    PURPOSE,
    prompt_gradient_errors,
    squared_gradient_norm,
    value_noise,
)
from llm_experiments.diagnose.pool_rewards import PoolRewards
from tests.helpers.statistical import generator

K = 6  # completions that the policy can give
PROBABILITY = np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05])
SCORES = np.eye(K) - PROBABILITY  # of a softmax over logits
COMPARED = ("kae", "grpo", "reinforce++", "none")


def estimators(*names):
    return [make_estimator(name) for name in names]


class Softmax:
    """Prompts with one softmax policy, also at past steps, and rewards of their own."""

    def __init__(self, rng, prompts=8):
        self.reward = (rng.random((prompts, K)) < rng.uniform(0.2, 0.8, (prompts, 1))).astype(float)

    def pool(self, rng, n, past=2, n_history=6):
        """A pool, and its Gram matrices."""
        prompts = len(self.reward)
        answer = rng.choice(K, p=PROBABILITY, size=(prompts, n))
        before = rng.choice(K, p=PROBABILITY, size=(prompts, past, n_history))
        row = np.arange(prompts)[:, None]
        norm2 = (SCORES**2).sum(axis=-1)
        pool = PoolRewards(5, self.reward[row, answer], self.reward[row[..., None], before]).with_weights(
            "exact", norm2[answer], norm2[before]
        )
        return pool, SCORES[answer] @ SCORES[answer].swapaxes(1, 2)


def test_the_squared_norm_is_its_u_statistic_over_quadruples():
    rng = generator(930)
    score, reward = rng.normal(size=(2, 6, 3)), rng.random((2, 6))
    gram = score @ score.swapaxes(1, 2)
    for b in range(2):
        terms = [
            (reward[b, h] - reward[b, k])
            * (reward[b, m] - reward[b, q])
            * ((score[b, h] - score[b, k]) @ (score[b, m] - score[b, q]))
            / 4
            for h, k, m, q in permutations(range(6), 4)
        ]
        assert squared_gradient_norm(gram, reward)[b] == pytest.approx(np.mean(terms), rel=1e-10)


def test_the_floors_variance_is_its_u_statistic_over_triples():
    rng = generator(931)
    score, reward = rng.normal(size=(1, 6, 3)), rng.random((1, 6))
    gram = score @ score.swapaxes(1, 2)
    z, w = reward[0], np.diag(gram[0])
    terms = [w[h] * (z[h] - z[k]) * (z[h] - z[m]) for h, k, m in permutations(range(6), 3)]
    assert value_noise(gram, reward)[0] == pytest.approx(np.mean(terms), rel=1e-10)


def least_noise(weight, reward):
    """Of a constant baseline, the best of the sample."""
    return np.mean(weight * reward**2) - np.mean(weight * reward) ** 2 / np.mean(weight)


def test_the_companion_is_its_definition_written_as_loops():
    rng = generator(932)
    bandit = Softmax(rng, prompts=3)
    pool, gram = bandit.pool(rng, 9)
    found = prompt_gradient_errors(
        pool, gram, estimators("kae", "kae@exact"), group_size=3, repeats=4, seed=1, debiased=True
    )
    norm = squared_gradient_norm(gram, pool.target)
    drawn = Drawing(3, seed=1, purpose=DEBIASED_PURPOSE).draw(pool, range(4))
    for column, name in enumerate(("kae", "kae@exact")):
        advantage = drawn.reward - make_estimator(name).values(drawn)
        for b in range(3):
            errors = []
            for r in range(4):
                inside = list(drawn.indices[r, b])
                rest = [h for h in range(9) if h not in inside]
                c, reference = np.zeros(9), np.zeros(9)
                c[inside] = advantage[r, b] / 3
                mean = np.mean([pool.target[b, h] for h in rest])
                for h in rest:
                    reference[h] = (pool.target[b, h] - mean) / (len(rest) - 1)
                errors.append(c @ gram[b] @ c - 2 * c @ gram[b] @ reference + norm[b])
            assert found.per_prompt[b, column] == pytest.approx(np.mean(errors), rel=1e-10)
    for b in range(3):
        weight, reward = np.diag(gram[b]), pool.target[b]
        without = [least_noise(np.delete(weight, h), np.delete(reward, h)) for h in range(9)]
        noise = value_noise(gram, pool.target)[b], 9 * least_noise(weight, reward) - 8 * np.mean(without)
        assert found.per_prompt[b, 2:] == pytest.approx((np.array(noise) - norm[b]) / 3, rel=1e-10)


def slow_errors(pool, gram, name, *, group_size, repeats, seed):
    """Prompt by prompt and repeat by repeat, in the words of the appendix; scores enter by their inner products."""
    drawn = Drawing(group_size, replace=True, seed=seed, purpose=PURPOSE).draw(pool, range(repeats))
    advantage = drawn.reward - make_estimator(name).values(drawn)
    found = []
    for b in range(pool.n_prompts):
        reference = (pool.target[b] - pool.target[b].mean()) / pool.n_target
        errors = []
        for r in range(repeats):
            coefficient = -reference
            for g in range(group_size):
                coefficient[drawn.indices[r, b, g]] += advantage[r, b, g] / group_size
            errors.append(coefficient @ gram[b] @ coefficient)
        found.append(np.mean(errors))
    return np.array(found)


@pytest.mark.parametrize("name", [*COMPARED, "ebpo", "kae_eb", "kae@exact", "grpo@exact"])
def test_the_diagnostic_is_the_papers_formula_written_as_loops(name):
    rng = generator(934)
    pool, gram = Softmax(rng, prompts=4).pool(rng, 7)
    sizes = {"group_size": 3, "repeats": 5, "seed": 2}
    found = prompt_gradient_errors(pool, gram, estimators(name), **sizes).per_prompt[:, 0]
    np.testing.assert_allclose(found, slow_errors(pool, gram, name, **sizes), rtol=1e-8, atol=1e-14)


def test_the_floors_are_the_exact_errors_of_the_pools_own_value_and_best_baseline():
    """With a constant baseline, of G draws from a known pool: ``(mean (Z - b)^2 W - ||mean||^2) / G + bias``."""
    rng = generator(935)
    pool, gram = Softmax(rng, prompts=3).pool(rng, 10)
    found = prompt_gradient_errors(pool, gram, estimators("none"), group_size=4, repeats=20_000, seed=0)
    weight = np.diagonal(gram, axis1=1, axis2=2)
    value = pool.target.mean(axis=1)
    best = (weight * pool.target).sum(axis=1) / weight.sum(axis=1)
    for name, constant in zip(("none", *FLOORS), (0 * value, value, best), strict=True):
        advantage = pool.target - constant[:, None]
        squared_mean = np.einsum("ph,phk,pk->p", advantage, gram, advantage) / 100
        off = pool.target - value[:, None] - advantage
        bias = np.einsum("ph,phk,pk->p", off, gram, off) / 100
        exact = ((advantage**2 * weight).mean(axis=1) - squared_mean) / 4 + bias
        column = found.methods.index(name)
        np.testing.assert_allclose(found.per_prompt[:, column], exact, rtol=0.05)


def test_score_norms_by_hand():
    weight = np.array([[1.0, 3.0, 5.0, 1.0], [2.0, 2.0, 2.0, 2.0], [1.0, 2.0, 3.0, 4.0]])
    reward = np.array([[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    table = score_norm_table(9, weight, reward, ["a", "b", "c"])
    first, second, third = table.to_dict("records")
    assert (first["norm2_right"], first["norm2_wrong"], first["value"]) == (1.0, 4.0, 0.5)
    assert first["best_baseline"] == pytest.approx(0.2)
    assert first["correlation"] == pytest.approx(np.corrcoef(weight[0], reward[0])[0, 1])
    assert first["noise_ratio"] == pytest.approx((2 * 0.64 + 8 * 0.04) / (10 * 0.25))
    assert second["best_baseline"] == pytest.approx(0.25) and second["noise_ratio"] == pytest.approx(1.0)
    assert np.isnan(second["correlation"]) and np.isnan(third["correlation"])
    assert np.isnan(third["norm2_wrong"]) and np.isnan(third["noise_ratio"])
    summary = score_norm_summary(table).set_index("quantity")
    assert summary.loc["log_wrong_over_right", "mean"] == pytest.approx(np.log(4) / 2)
    assert summary.loc["shift", "mean"] == pytest.approx(-0.1)
    assert summary["n_prompts"].to_dict() == {
        "value": 3, "correlation": 1, "log_wrong_over_right": 2, "shift": 3, "noise_ratio": 2
    }  # fmt: skip
