"""Processor times of several pieces of code in one run, with intervals."""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

COVERAGE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A median with a distribution-free interval of at least 95 % coverage (the whole range below six repetitions)."""

    median: float
    low: float
    high: float


def interleaved(pieces: Mapping[str, Callable[[], object]], *, repetitions: int) -> dict[str, np.ndarray]:
    """Seconds of every call, the pieces taking turns, so that whatever slows the machine slows them alike.

    pieces: What to time. Each is called once untimed, in the order given; then the order turns round at every
        repetition.
    repetitions: Timed calls of each piece.
    Returns dict of str to ndarray, shape (repetitions,).
    """
    seconds = {name: np.empty(repetitions) for name in pieces}
    for piece in pieces.values():
        piece()
    gc.collect()
    for repetition in range(repetitions):
        for name in pieces if repetition % 2 == 0 else reversed(pieces):
            start = time.process_time()
            pieces[name]()
            seconds[name][repetition] = time.process_time() - start
    return seconds


def estimate(samples: np.ndarray) -> Estimate:
    """Median of the samples and the interval between the order statistics that hold it with 95 % probability."""
    ordered = np.sort(samples)
    n = len(ordered)
    outside = max(int(binom.ppf((1 - COVERAGE) / 2, n, 0.5)), 1) - 1  # samples to leave out on either side
    return Estimate(float(np.median(ordered)), float(ordered[outside]), float(ordered[n - 1 - outside]))
