"""A training step of four methods, in milliseconds.

Timed: all of ``AdvantageEstimator.step`` of prompts that all return at every step, after 30 visits, with string ids and
0/1 rewards of single precision, the completions of a prompt side by side. The methods take turns.
"""

from collections.abc import Callable
from itertools import count, cycle

import numpy as np

from benchmarks.rows import Row
from benchmarks.timing import estimate, interleaved
from kaestat import AdvantageEstimator

CODE = ("kaestat/core", "kaestat/estimator", "kaestat/baselines", "kaestat/history")
CLAIM = "A step takes at most 10 ms at 256 × 8 completions and 300 ms at 16,384 × 8; a step of training takes seconds"
METHODS = ("rloo", "kae:bandwidth=10", "kae_eb", "bayes_filter")
GROUP = 8
SIZES = {"full": ((256, 30, 60, 10.0), (16_384, 30, 21, 300.0)), "tiny": ((4, 2, 2, 10.0),)}


def run(size: str = "full") -> list[Row]:
    """Milliseconds of a step by method and number of prompts."""
    rows = []
    for n_prompts, visits, repetitions, most in SIZES[size]:
        pieces = {method: _stepper(method, n_prompts, visits) for method in METHODS}
        seconds = interleaved(pieces, repetitions=repetitions)
        case = f"{n_prompts:,} × {GROUP}"
        rows += [Row(case, f"{name} step", "ms", estimate(1e3 * each), at_most=most) for name, each in seconds.items()]
    return rows


def _stepper(method: str, n_prompts: int, visits: int) -> Callable[[], object]:
    estimator, rng, step = AdvantageEstimator(method), np.random.default_rng(1), count()
    ids = np.repeat(np.array([f"prompt-{key:012d}" for key in range(n_prompts)], dtype=object), GROUP)
    value = np.repeat(rng.random(n_prompts), GROUP)
    rewards = cycle([(rng.random(len(ids)) < value).astype(np.float32) for _ in range(10)])
    for _ in range(visits):
        estimator.step(ids, next(rewards), next(step))
    return lambda: estimator.step(ids, next(rewards), next(step))
