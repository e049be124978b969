"""A training step of each method that is compared in the study of efficiency, against KAE with a fixed bandwidth.

Timed: all of ``AdvantageEstimator.step`` with string ids, of prompts that differ and all return at every step, 0/1
rewards as NumPy arrays drawn beforehand, after 50 steps. Each method takes turns with KAE alone. Times are those of the
processor: where others use it too, a step of some milliseconds loses its turn more often than one of half a
millisecond, which is no cost of its own. For the committed numbers BLAS had one thread (``OPENBLAS_NUM_THREADS=1``).
"""

import time
import uuid
from collections.abc import Callable
from itertools import count, cycle

import numpy as np

from benchmarks.report import show
from benchmarks.rows import Row
from benchmarks.timing import estimate, interleaved, ratio
from kaestat import AdvantageEstimator

CODE = ("kaestat/estimator", "kaestat/baselines/kae.py", "kaestat/smoothing")
CLAIM = "A step of bayes_filter, the default, costs less than 4 times one of KAE with a fixed bandwidth"
SIZES = {"full": ((64, 8, 200), (256, 8, 100), (512, 8, 100)), "tiny": ((4, 2, 2),)}
STEPS_BEFORE = 50
FIXED = "kae:bandwidth=10"
METHODS = (
    "bayes_filter",
    "kae_eb:bandwidth=auto",
    "kae:bandwidth=auto",
    "kae_eb:bandwidth=20",
    "kalman",
    "spo",
    "james_stein",
    "rloo",
)
AT_MOST = {"bayes_filter": 4.0}


def run(size: str = "full") -> list[Row]:
    """Milliseconds of both and their ratio, by number of prompts and method."""
    return [row for shape in SIZES[size] for method in METHODS for row in _rows(method, *shape)]


def _rows(method: str, n_prompts: int, group: int, repetitions: int) -> list[Row]:
    case = f"{n_prompts:,} × {group}"
    pieces = {name: _stepper(name, n_prompts, group) for name in (FIXED, method)}
    seconds = interleaved(pieces, repetitions=repetitions, clock=time.process_time)
    cost = ratio(seconds[method], seconds[FIXED])
    return [
        *(Row(case, f"{name} step", "ms", estimate(1e3 * sample)) for name, sample in seconds.items()),
        Row(case, f"{method} / {FIXED}", "ratio", cost, AT_MOST.get(method)),
    ]


def _stepper(method: str, n_prompts: int, group: int) -> Callable[[], object]:
    rng, step, estimator = np.random.default_rng(1), count(), AdvantageEstimator(method)
    ids = np.repeat(np.array([str(uuid.UUID(bytes=rng.bytes(16))) for _ in range(n_prompts)], dtype=object), group)
    value = np.repeat(rng.random(n_prompts), group)
    rewards = cycle([(rng.random(len(ids)) < value).astype(np.float32) for _ in range(STEPS_BEFORE)])

    def once() -> object:
        return estimator.step(ids, next(rewards), step=next(step))

    for _ in range(STEPS_BEFORE):
        once()
    return once


if __name__ == "__main__":
    show(CLAIM, run())
