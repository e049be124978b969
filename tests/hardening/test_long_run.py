"""A history that has run for long: exact to the last visit, and no larger than its horizon.

Rewards are 0 or 1, so counts and sums are integers, and a value of KAE with the triangular kernel and a whole
bandwidth is a ratio of two integers: the reference is exact arithmetic with no history of kaestat's in it, and neither
drift nor a lost or doubled visit can hide.
"""

import gc
import tracemalloc
from collections import defaultdict, deque
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from kaestat import AdvantageEstimator, RewardHistory


@dataclass(frozen=True)
class LongRun:
    """Values compared with exact ones and the worst difference; at each tenth of the run the bytes of the history's
    arrays, and all that Python had allocated; most visits of a prompt within reach; bytes of the state.
    """

    checked: int
    worst: float
    sizes: list[int]
    traced: list[int]
    most: int
    state: int


def long_run(*, steps: int, prompts: int, batch: int = 64, group: int = 4, bandwidth: int) -> LongRun:
    """Run an estimator for so many steps, and compare some of its values with exact ones along the way."""
    rng = np.random.default_rng(0)
    estimator = AdvantageEstimator("kae", bandwidth=bandwidth)
    past: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)  # step and number of right answers
    sizes, traced, checked, worst, most = [], [], 0, 0.0, 0
    every = max(1, steps // 1000)
    tracemalloc.start()
    for step in range(steps):
        drawn = rng.choice(prompts, size=batch, replace=False)
        rewards = (rng.random((batch, group)) < 0.2 + 0.6 * step / steps).astype(float)
        estimator.step(np.repeat(drawn, group), rewards.reshape(-1), step)
        right = rewards.sum(axis=1).astype(int).tolist()
        if step % every == 0:
            values = estimator.values.reshape(batch, group)
            for row in rng.choice(batch, size=4, replace=False).tolist():
                own = int(rewards[row, 0])
                exact = exact_value(past[int(drawn[row])], step, right[row] - own, group, bandwidth)
                if exact is not None:
                    checked, worst = checked + 1, max(worst, abs(float(Fraction(float(values[row, 0])) - exact)))
        for prompt, total in zip(drawn.tolist(), right, strict=True):
            visits = past[prompt]
            visits.append((step, total))
            while step - visits[0][0] > bandwidth:
                visits.popleft()
            most = max(most, len(visits))
        if (step + 1) % max(1, steps // 10) == 0:
            gc.collect()
            sizes.append(estimator.history.nbytes)
            traced.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    state = sum(len(field["__bytes__"]) for field in estimator.state_dict()["history"]["fields"].values())
    return LongRun(checked, worst, sizes, traced, most, state)


def exact_value(past: deque[tuple[int, int]], step: int, others: int, group: int, bandwidth: int) -> Fraction | None:
    """Algorithm 1's ratio in integers; the kernel's factor 2 / bandwidth cancels."""
    weights = [max(bandwidth - (step - visited), 0) for visited, _ in past]
    mass = sum(weights) * group + bandwidth * (group - 1)
    carried = sum(w * total for w, (_, total) in zip(weights, past, strict=True)) + bandwidth * others
    return Fraction(carried, mass) if mass else None


@pytest.mark.parametrize("steps", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_values_do_not_drift_and_memory_levels_off(steps):
    prompts, bytes_a_visit = steps // 10, 32
    run = long_run(steps=steps, prompts=prompts, batch=16, bandwidth=steps // 15)
    assert run.checked > steps
    assert run.worst < 1e-14
    columns, rows = 1.25 * run.most + 3, 1.125 * prompts + 2  # room is made ahead, by a quarter and an eighth
    assert max(run.sizes) <= bytes_a_visit * columns * rows, "visits beyond the horizon are kept"
    beside = [traced - size for traced, size in zip(run.traced, run.sizes, strict=True)]
    assert beside[-1] < 1.2 * beside[2], "something beside the history's arrays grows with the steps"
    assert run.state <= run.sizes[-1]


def test_a_history_without_horizon_grows_with_its_visits_alone():
    history, bytes_a_visit = RewardHistory(), 32
    for step in range(400):
        history.record(["a", "b"], step=step, count=[2, 2], total=[1.0, 2.0], total_sq=[1.0, 2.0])
    assert history.width <= 1.25 * 400 + 2
    assert history.nbytes <= bytes_a_visit * history.width * 3
    visits = history.visits(["a"], 400)
    np.testing.assert_array_equal(visits.lag[0, -400:], np.arange(400, 0, -1))
