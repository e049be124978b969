"""A training step of the default against KAE with a fixed bandwidth; other methods, ids and ``order="any"``.

Timed: all of ``AdvantageEstimator.step`` of prompts that all return at every step, 0/1 rewards of single precision,
after so many visits, with integer and with string ids; in turns, in processor time. For the committed numbers BLAS had
one thread (``OPENBLAS_NUM_THREADS=1``). The other methods are those that the study of efficiency compares.

The price of ``order="any"``: the same steps, all in order, and with one completion in twenty of the policy of the step
before, so that it is late by one.

The price of ids: a step of ``rloo``, which keeps no history, against NumPy's mean of groups whose prompts are already
numbered, ``bincount(codes, rewards) / bincount(codes)``.
"""

import time
from collections.abc import Callable
from itertools import count, cycle

import numpy as np

from benchmarks.rows import Row
from benchmarks.timing import estimate, interleaved, ratio
from kaestat import AdvantageEstimator
from kaestat.baselines.registry import DEFAULT_METHOD

CODE = ("kaestat/core/samples.py", "kaestat/estimator", "kaestat/baselines/bayes_filter.py", "kaestat/baselines/kae.py")
FIXED = "kae:bandwidth=10"
CLAIM = f"A step of the default, {DEFAULT_METHOD}, costs at most 3 times one of KAE with a fixed bandwidth"
AT_MOST = 3.0
SIZES = {"full": ((256, (10, 60, 300), 60), (16_384, (10, 60, 300), 21)), "tiny": ((4, (2,), 2),)}
OTHERS = ("kae_eb:bandwidth=auto", "kae:bandwidth=auto", "kae_eb:bandwidth=20", "kalman", "spo", "james_stein", "rloo")
OTHERS_AFTER, OTHER_SIZES = 50, {"full": ((64, 200), (512, 100)), "tiny": ((4, 2),)}
GROUP, ANY_AFTER, LATE = 8, 30, 0.05
IN_ANY_ORDER, WITH_LATE = f"{DEFAULT_METHOD}, any order", f"{DEFAULT_METHOD}, any order, 5 % late"
ANY_AT_MOST = 1.5
GROUPED_MEAN = "NumPy's mean of numbered groups"


def run(size: str = "full") -> list[Row]:
    """Milliseconds and ratios by number of prompts, kind of ids and visits behind them."""
    rows: list[Row] = []
    for n_prompts, visits, repetitions in SIZES[size]:
        for kind in ("integer", "string"):
            for before in visits:
                rows += _against(DEFAULT_METHOD, FIXED, n_prompts, kind, before, repetitions, AT_MOST)
    n_prompts, visits, repetitions = SIZES[size][-1]
    for kind in ("integer", "string"):
        rows += _against("rloo", GROUPED_MEAN, n_prompts, kind, min(visits), 3 * repetitions, AT_MOST)
    for n_prompts, repetitions in OTHER_SIZES[size]:
        for method in (DEFAULT_METHOD, *OTHERS):
            rows += _against(method, FIXED, n_prompts, "string", OTHERS_AFTER, repetitions, None)
    n_prompts, visits, repetitions = SIZES[size][0]
    after = min(ANY_AFTER, max(visits))
    rows += _against(IN_ANY_ORDER, DEFAULT_METHOD, n_prompts, "string", after, repetitions, ANY_AT_MOST)
    return rows + _against(WITH_LATE, DEFAULT_METHOD, n_prompts, "string", after, repetitions, None)


def _against(
    name: str, other: str, n_prompts: int, kind: str, before: int, repetitions: int, at_most: float | None
) -> list[Row]:
    case = f"{n_prompts:,} × {GROUP}, {kind} ids, {before} visits"
    pieces = {each: _stepper(each, n_prompts, kind, before) for each in (other, name)}
    seconds = interleaved(pieces, repetitions=repetitions, clock=time.process_time)
    return [
        *(
            Row(case, f"{each} step" if each != GROUPED_MEAN else each, "ms", estimate(1e3 * sample))
            for each, sample in seconds.items()
        ),
        Row(case, f"{name} / {other}", "ratio", ratio(seconds[name], seconds[other]), at_most),
    ]


def _stepper(name: str, n_prompts: int, kind: str, before: int) -> Callable[[], object]:
    if name == GROUPED_MEAN:
        codes = np.repeat(np.arange(n_prompts), GROUP)
        reward = np.random.default_rng(1).random(len(codes))
        return lambda: reward - (np.bincount(codes, reward) / np.bincount(codes))[codes]
    method, *order = name.split(", ")
    estimator = AdvantageEstimator(method, order="any" if order else "strict")
    rng, step = np.random.default_rng(1), count()
    keys = 7 * np.arange(n_prompts) + 3
    ids = np.repeat(
        keys if kind == "integer" else np.array([f"prompt-{key:012d}" for key in keys], dtype=object), GROUP
    )
    value = np.repeat(rng.random(n_prompts), GROUP)
    rewards = cycle([(rng.random(len(ids)) < value).astype(np.float32) for _ in range(10)])

    def once() -> object:
        now = next(step)
        version = np.maximum(now - (rng.random(len(ids)) < LATE), 0) if name == WITH_LATE else None
        return estimator.step(ids, next(rewards), step=now, version=version)

    for _ in range(before):
        once()
    return once
