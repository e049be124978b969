"""A long run of the history beside exact sums: ``python -m tests.hardening.long_run`` (1e5 steps, 17,000 prompts).

Rewards are 0 or 1, so counts and sums are integers, and a value of KAE with the triangular kernel and a whole
bandwidth is a ratio of two integers: the reference is exact arithmetic with no history of kaestat's in it, and neither
drift nor a lost or doubled visit can hide.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections import defaultdict, deque
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from kaestat import AdvantageEstimator

BANDWIDTH = 10_000  # steps: with 17,000 prompts and 64 a step, about 38 visits of a prompt within reach


@dataclass(frozen=True)
class LongRun:
    """What a run showed.

    Attributes
    ----------
    checked : int
        Values compared with the exact ones.
    worst : float
        Largest difference among them.
    sizes : list of int
        Bytes of the history's arrays at each tenth of the run.
    traced : list of int
        Bytes that Python had allocated at each tenth of the run.
    most : int
        Most visits of one prompt within the horizon, ever.
    state : int
        Bytes of the arrays in ``state_dict`` at the end.
    seconds : float
        Time spent in ``step``.
    """

    checked: int
    worst: float
    sizes: list[int]
    traced: list[int]
    most: int
    state: int
    seconds: float


def long_run(*, steps: int, prompts: int, batch: int = 64, group: int = 4, bandwidth: int = BANDWIDTH) -> LongRun:
    """Run an estimator for so many steps, and compare some of its values with exact ones along the way."""
    rng = np.random.default_rng(0)
    estimator = AdvantageEstimator("kae", bandwidth=bandwidth)
    past: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)  # step and number of right answers
    sizes, traced, checked, worst, most, seconds = [], [], 0, 0.0, 0, 0.0
    every = max(1, steps // 1000)
    tracemalloc.start()
    for step in range(steps):
        drawn = rng.choice(prompts, size=batch, replace=False)
        rewards = (rng.random((batch, group)) < 0.2 + 0.6 * step / steps).astype(float)
        began = time.perf_counter()
        estimator.step(np.repeat(drawn, group), rewards.reshape(-1), step)
        seconds += time.perf_counter() - began
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
    return LongRun(checked, worst, sizes, traced, most, state, seconds)


def exact_value(past: deque[tuple[int, int]], step: int, others: int, group: int, bandwidth: int) -> Fraction | None:
    """Algorithm 1's ratio in integers; the kernel's factor 2 / bandwidth cancels."""
    weights = [max(bandwidth - (step - visited), 0) for visited, _ in past]
    mass = sum(weights) * group + bandwidth * (group - 1)
    carried = sum(w * total for w, (_, total) in zip(weights, past, strict=True)) + bandwidth * others
    return Fraction(carried, mass) if mass else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--prompts", type=int, default=17_000)
    arguments = parser.parse_args()
    run = long_run(steps=arguments.steps, prompts=arguments.prompts)
    print(f"{arguments.steps} steps, {arguments.prompts} prompts: {run.checked} values checked, worst {run.worst:.2g}")
    print(f"history MB {[round(size / 1e6, 1) for size in run.sizes]}; state {run.state / 1e6:.1f} MB")
    print(f"at most {run.most} visits of a prompt within the horizon")
    print(f"traced MB {[round(size / 1e6, 1) for size in run.traced]} (the reference's visits among them)")
    print(f"{run.seconds:.0f} s in step")


if __name__ == "__main__":
    main()
