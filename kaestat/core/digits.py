"""Digits of sums of squared rewards, and of variances from them.

A history keeps ``sum Z`` and ``sum Z^2`` of each visit in double precision (16 digits). Variances are differences of
these: where rewards lie k times their range away from 0, ``2 log10 k`` digits are lost. So rewards far from 0 enter as
differences from one of them.
"""

import numpy as np

from kaestat.core.arrays import Array, namespace

FAR = 1e3  # ranges away from 0: up to there ten digits of a variance are left
ROUNDING = 64.0  # of sums over visits, in units of the last place


def beyond_rounding(difference: Array, of: Array) -> Array:
    """The difference of two sums, 0 where it is less than the rounding of the larger one, ``of``."""
    xp = namespace(difference)
    return xp.where(difference > ROUNDING * xp.finfo(difference.dtype).eps * of, difference, xp.zeros_like(difference))


def variance_from(square: Array, mean: Array) -> Array:
    """``square - mean**2`` for means of Z^2 and Z; exactly 0 where all rewards are equal."""
    return beyond_rounding(square - mean**2, square)


def center_of(rewards: np.ndarray) -> float:
    """The lowest of some rewards that lie far from 0, or 0. Equal ones are taken for rewards with a range of 1."""
    low, high = float(rewards.min()), float(rewards.max())
    return low if max(-low, high) > FAR * ((high - low) or 1.0) else 0.0
