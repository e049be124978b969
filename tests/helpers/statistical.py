"""The one helper behind every statistical test: both error rates are stated, and too few replicates are refused.

A test says which number it expects (``target``), how often it may fail although the code is right (``false_fail``), and
which ``detect``, a discrepancy from the target, must make it fail, with probability at least ``power``. Each use has a
negative control: a wrong variant, a discrepancy of at least ``detect``, that must raise `Discrepancy`.

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
    false_fail: float = FALSE_FAIL,
    power: float = POWER,
) -> None:
    """Raise `Discrepancy` if a mean differs from its target by more than chance allows.

    observations (shape (N,)): Independent replicates, of which mean and standard error are tested. Or give both.
    detect: Discrepancy, positive, that must be found with probability ``power``.
    side: Whether the mean shall equal the target, or only not fall below, or not exceed it.
    false_fail: Probability that a mean at the target raises.
    Raises ValueError, before the data are compared with the target, if the replicates are too few, or too noisy, for
        both error rates.
    """
    if observations is not None:
        estimate, se = _mean_and_error(np.asarray(observations, dtype=float))
    if estimate is None or se is None or not (math.isfinite(estimate) and math.isfinite(se) and se >= 0):
        raise ValueError(f"give observations, or a finite estimate and se, got estimate={estimate!r}, se={se!r}.")
    if side not in ("equal", "at least", "at most"):
        raise ValueError(f"side must be 'equal', 'at least' or 'at most', got {side!r}.")
    if not (detect > 0 and 0 < false_fail < 0.5 < power < 1):
        raise ValueError(f"need detect > 0, 0 < false_fail < 1/2 < power < 1; got {detect}, {false_fail}, {power}.")
    allowed = -float(ndtri(false_fail / 2 if side == "equal" else false_fail)) * se
    needed = allowed + float(ndtri(power)) * se
    if needed > detect:
        raise ValueError(
            f"the replicates cannot deliver both error rates: with se {se:.3g} only a discrepancy of {needed:.3g} is "
            f"found, not {detect:.3g}; take {(needed / detect) ** 2:.1f} times as many."
        )
    off = estimate - target
    contradicted = {"equal": abs(off), "at least": -off, "at most": off}[side] > allowed
    if contradicted:
        raise Discrepancy(f"mean {estimate:.6g} (se {se:.3g}) should be {side} {target:.6g}; off by {off:.3g}.")


def _mean_and_error(observations: np.ndarray) -> tuple[float, float]:
    if observations.ndim != 1 or len(observations) < FEWEST_OBSERVATIONS:
        raise ValueError(
            f"observations must be one row of at least {FEWEST_OBSERVATIONS} replicates, got {observations.shape}."
        )
    return float(observations.mean()), float(observations.std(ddof=1) / math.sqrt(len(observations)))
