"""A group blended with its cluster: by hand, against the slow reference, and new clusters on the way."""

from statistics import fmean

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from tests.helpers.method_case import MethodCase
from tests.helpers.references import per_completion

CLUSTERS = {"a": 0, "b": 0, "c": 1}


def test_a_hand_computed_step():
    estimator = AdvantageEstimator("cluster_blend", clusters=CLUSTERS, forgetting=0.5)
    estimator.step(["a", "a", "b", "b"], [1.0, 0.0, 1.0, 1.0], 0)
    # Of cluster 0: mean 3/4, variance 3/16, within groups (1/2 + 0) / 2 = 1/4, so nothing lies between prompts.
    estimator.step(["a", "a", "a"], [1.0, 1.0, 0.0], 1)
    noise, error = 0.25 / 2, 3 / 16 / 4
    weight = noise / (noise + error)
    expected = [(1 - weight) * others + weight * 0.75 for others in (0.5, 0.5, 1.0)]
    np.testing.assert_allclose(estimator.values, expected, atol=1e-12)


@pytest.mark.parametrize("unit", [10.0, 1.1, 0.3])
def test_rewards_that_are_all_alike_do_not_vary_in_any_unit(unit):
    """Rounding was taken for variance between prompts, so that the cluster lost its whole weight."""
    values = []
    for scale in (1.0, unit):
        estimator = AdvantageEstimator("cluster_blend", clusters=CLUSTERS)
        for step, size in enumerate([3, 2, 4, 3, 5, 1, 7]):
            estimator.step(["b"] * size, [scale] * size, step)
        estimator.step(["a", "a"], [scale, 0.0], 7)
        values.append(estimator.values / scale)
    np.testing.assert_allclose(values[1], values[0], atol=1e-9)


def test_a_new_cluster_has_the_group_alone_and_without_one_the_mean_of_all():
    estimator = AdvantageEstimator("cluster_blend", clusters=CLUSTERS)
    estimator.step(["a", "a"], [1.0, 0.0], 0)
    estimator.step(["c", "c", "c"], [1.0, 0.0, 0.0], 1)
    assert estimator.values.tolist() == [0.0, 0.5, 0.5]
    fresh = AdvantageEstimator("cluster_blend", clusters=CLUSTERS)
    fresh.step(["a", "a"], [1.0, 0.0], 0)
    fresh.step(["c"], [1.0], 1)
    assert fresh.values.tolist() == [0.5]


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ({"a": 0}, "no cluster of prompt 'b'"),
        ({"a": 0, "b": -1}, "whole numbers from 0"),
        ({"a": 0, "b": 10**9}, "whole numbers from 0"),
        ({"a": 0.0, "b": 1.0}, "whole numbers from 0"),
        (lambda prompts: [0], "2 whole numbers"),
        (lambda prompts: ["x", "y"], "2 whole numbers"),
    ],
)
def test_what_is_no_cluster_is_refused(clusters, message):
    with pytest.raises(ValueError, match=message):
        AdvantageEstimator("cluster_blend", clusters=clusters).step(["a", "b"], [1.0, 0.0], 0)


def cluster_blend(case, *, clusters, forgetting=0.9):
    """Rest of the group and mean of the cluster's earlier completions, weighted by how uncertain each is."""

    def moments(cluster):
        """Weight, mean, variance and variance within groups of a cluster's completions; of all for None."""
        groups = [
            (forgetting**age, rewards)
            for age, step in enumerate(reversed(case.earlier))
            for prompt, rewards in step
            if rewards and cluster in (None, clusters[prompt])
        ]
        n = sum(w * len(rewards) for w, rewards in groups)
        if n == 0:
            return 0.0, 0.0, 0.0, 0.0
        mean = sum(w * sum(rewards) for w, rewards in groups) / n
        variance = sum(w * sum((z - mean) ** 2 for z in rewards) for w, rewards in groups) / n
        freedom = sum(w * (len(rewards) - 1) for w, rewards in groups)
        within = sum(w * sum((z - fmean(rewards)) ** 2 for z in rewards) for w, rewards in groups)
        return n, mean, variance, within / freedom if freedom > 0 else variance

    def value(p, g):
        n, mu, variance, within = moments(clusters[case.prompts[p]])
        others = [z for k, z in enumerate(case.rewards[p]) if k != g]
        if not others:
            return mu if n else moments(None)[1]
        if n == 0:
            return fmean(others)
        s, rest = within / len(others), max(variance - within, 0.0) + variance / n
        weight = s / (s + rest) if s + rest > 1e-15 else 1.0
        return (1 - weight) * fmean(others) + weight * mu

    return per_completion(case, value)


CASE_CLUSTERS = {f"p{k}": k % 2 for k in range(4)}
CASES = [
    MethodCase("cluster_blend", cluster_blend, {"clusters": CASE_CLUSTERS}),
    MethodCase("cluster_blend", cluster_blend, {"clusters": CASE_CLUSTERS, "forgetting": 0.5}),
]
