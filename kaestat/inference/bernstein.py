"""Empirical-Bernstein interval for a weighted sum of rewards of known range, valid at every sample size."""

from __future__ import annotations

import math

from kaestat.core.arrays import Array, ratio
from kaestat.inference.linear_fit import LinearFit


def bernstein_half_width(fit: LinearFit, level: float, bounds: tuple[float, float]) -> Array:
    """Half-width of an interval for the mean of the fit, shape (..., P).

    For independent rewards X_k in [a, b], identically distributed within a visit, and ``S = sum_k w_k X_k``, with
    probability at least ``1 - delta``, where ``l = log(3 / delta)`` and ``c = (b - a) max_k |w_k|``::

        |S - E S| <= sqrt(2 s l) + c l / 3
        s = [ sqrt(A l / 2) + sqrt(T + A l / 2) ]^2
        T = sum_v w_v^2 n_v s_v^2                     s_v^2: unbiased variance within visit v
        A = (b - a)^2 max_v w_v^2 n_v / (n_v - 1)

    A visit of a single completion has no variance within; it enters T with the largest that there can be,
    ``w_v^2 (b - a)^2 / 4``, and A not at all.

    Parameters
    ----------
    fit : LinearFit
    level : float
        ``1 - delta``.
    bounds : (a, b)
        Range of the rewards.

    Notes
    -----
    This is Theorem 11 of Maurer and Pontil (2009) with weights. Its parts, a third of delta each: Bernstein's
    inequality for either tail of S, with the true variance ``sigma^2 = E T``; and ``sigma^2 <= s``, since T is
    self-bounding. Replacing X_k by the mean of the rest of its visit lowers T by ``D_k = w_v^2 (n_v / (n_v - 1))^2
    (X_k - mean_v)^2``, the most that any replacement can, so ``D_k <= w_v^2 (b - a)^2`` and ``sum_k D_k^2 <= A T``.
    Then ``P(E T - T >= t) <= exp(-t^2 / (2 A E T))`` (Maurer, 2006), and solving for E T gives s. With equal weights
    in a single visit, s is at most ``(sqrt(s_v^2) + sqrt(2 l / (n - 1)))^2 / n``, their Theorem 10.

    The value path is taken as given: that rewards steer the later policies, and so the later values, is left aside.
    """
    xp, count, weight_sq = fit.xp, fit.sample.count, fit.weight**2
    width = bounds[1] - bounds[0]
    log = math.log(3 / (1 - level))
    several = xp.astype(count > 1, count.dtype)
    alone = xp.astype(count == 1, count.dtype)
    spread = xp.sum(weight_sq * (count * fit.visit_variance + alone * width**2 / 4), axis=-1)
    step = width**2 * xp.max(weight_sq * several * ratio(count, count - 1, 0.0, xp), axis=-1)
    variance = (xp.sqrt(step * log / 2) + xp.sqrt(spread + step * log / 2)) ** 2
    largest = width * xp.max(xp.abs(fit.weight), axis=-1)
    return xp.sqrt(2 * variance * log) + largest * log / 3
