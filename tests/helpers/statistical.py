"""The one helper behind every statistical test: both error rates are stated, and too few replicates are refused.

A test says which number it expects (``target``), and which discrepancy from it (``detect``) must make it fail, with
probability at least `POWER`. It fails by chance with probability `FALSE_FAIL`. Each use has a negative control: a wrong
variant, a discrepancy of at least ``detect``, that must raise `Discrepancy`.

Seeds are fixed unless the environment variable KAESTAT_TEST_SEED varies them.
"""

import math
import os
from typing import Literal

import numpy as np
from scipy.special import ndtri

FALSE_FAIL = 1e-6
POWER = 1 - 1e-3
FEWEST_OBSERVATIONS = 100  # below that the central limit theorem says nothing of a probability of 1e-6


class Discrepancy(AssertionError):
    """The data contradict the target."""


def generator(salt: int = 0) -> np.random.Generator:
    """A seeded generator; ``salt`` separates the tests, KAESTAT_TEST_SEED (default 0) varies them all."""
    return np.random.default_rng([int(os.environ.get("KAESTAT_TEST_SEED", "0")), salt])


def check_mean(
    observations: np.ndarray | None = None,
    *,
    target: float,
    detect: float,
    estimate: float | None = None,
    se: float | None = None,
    side: Literal["equal", "at least", "at most"] = "equal",
) -> None:
    """Raise `Discrepancy` if a mean differs from its target by more than chance allows.

    observations (shape (N,)): Independent replicates, of which mean and standard error are tested. Or give both.
    detect: Discrepancy, positive, that must be found with probability `POWER`.
    side: Whether the mean shall equal the target, or only not fall below, or not exceed it.
    Raises ValueError, before the data are compared with the target, if the replicates are too few, or too noisy, for
        both error rates.
    """
    if observations is not None:
        observations = np.asarray(observations, dtype=float)
        assert observations.ndim == 1 and len(observations) >= FEWEST_OBSERVATIONS, "give more replicates"
        estimate, se = float(observations.mean()), float(observations.std(ddof=1) / math.sqrt(len(observations)))
    assert math.isfinite(estimate) and math.isfinite(se) and detect > 0
    allowed = -float(ndtri(FALSE_FAIL / 2 if side == "equal" else FALSE_FAIL)) * se
    needed = allowed + float(ndtri(POWER)) * se
    if needed > detect:
        raise ValueError(
            f"the replicates cannot deliver both error rates: with se {se:.3g} only a discrepancy of {needed:.3g} is "
            f"found, not {detect:.3g}; take {(needed / detect) ** 2:.1f} times as many."
        )
    off = estimate - target
    if {"equal": abs(off), "at least": -off, "at most": off}[side] > allowed:
        raise Discrepancy(f"mean {estimate:.6g} (se {se:.3g}) should be {side} {target:.6g}; off by {off:.3g}.")
