"""A history that has run for long: exact to the last visit, and no larger than its horizon.

Rewards are 0 or 1, so counts and sums are integers, and a value of KAE with the triangular kernel and a whole
bandwidth is a ratio of two integers: the reference is exact arithmetic with no history of kaestat's in it, and neither
drift nor a lost or doubled visit can hide.
"""

import gc
import tracemalloc
from collections import defaultdict, deque
from fractions import Fraction

import numpy as np
import pytest

from kaestat import AdvantageEstimator

BYTES = 32  # of a visit


def exact_value(past: deque[tuple[int, int]], step: int, others: int, group: int, bandwidth: int) -> Fraction | None:
    """Algorithm 1's ratio in integers; the kernel's factor 2 / bandwidth cancels."""
    weights = [max(bandwidth - (step - visited), 0) for visited, _ in past]
    mass = sum(weights) * group + bandwidth * (group - 1)
    carried = sum(w * total for w, (_, total) in zip(weights, past, strict=True)) + bandwidth * others
    return Fraction(carried, mass) if mass else None


@pytest.mark.parametrize("steps", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_values_do_not_drift_and_memory_levels_off(steps):
    rng, prompts, batch, group, bandwidth = np.random.default_rng(0), steps // 10, 16, 4, steps // 15
    estimator = AdvantageEstimator("kae", bandwidth=bandwidth)
    past: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)  # step and number of right answers
    checked, most, sizes, others = 0, 0, [], []
    tracemalloc.start()
    for step in range(steps):
        drawn = rng.choice(prompts, size=batch, replace=False)
        rewards = (rng.random((batch, group)) < 0.2 + 0.6 * step / steps).astype(float)
        estimator.step(np.repeat(drawn, group), rewards.reshape(-1), step)
        right = rewards.sum(axis=1).astype(int).tolist()
        values = estimator.values.reshape(batch, group)
        for row in rng.choice(batch, size=4, replace=False).tolist():
            exact = exact_value(past[int(drawn[row])], step, right[row] - int(rewards[row, 0]), group, bandwidth)
            if exact is not None:
                checked += 1
                assert abs(Fraction(float(values[row, 0])) - exact) < 1e-14
        for prompt, total in zip(drawn.tolist(), right, strict=True):
            past[prompt].append((step, total))
            while step - past[prompt][0][0] > bandwidth:
                past[prompt].popleft()
            most = max(most, len(past[prompt]))
        if (step + 1) % (steps // 10) == 0:
            gc.collect()
            sizes.append(estimator.history.nbytes)
            others.append(tracemalloc.get_traced_memory()[0] - sizes[-1])
    tracemalloc.stop()
    assert checked > steps
    columns, rows = 1.25 * most + 3, 1.125 * prompts + 2  # room is made ahead, by a quarter and an eighth
    assert max(sizes) <= BYTES * columns * rows, "visits beyond the horizon are kept"
    assert others[-1] < 1.2 * others[2], "something else than the history's arrays grows with the steps"
    fields = estimator.state_dict()["history"]["fields"].values()
    assert sum(len(field["__bytes__"]) for field in fields) <= sizes[-1]
