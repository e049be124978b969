"""Chernoff interval for a weighted mean of bounded rewards, at the worst value path of the Lipschitz class."""

import math

from kaestat.core.arrays import Array, Namespace, ratio
from kaestat.inference.linear_fit import LinearFit

HALVINGS = 22  # of a bracket of at most 1: to below 1e-6
TILTS = 30  # Newton's steps for the minimum over t: a dozen suffice from its beginning, and more cost nothing


def chernoff_interval(
    fit: LinearFit, level: float, bounds: tuple[float, float], lipschitz: float | Array = 0.0
) -> tuple[Array, Array]:
    """Both ends of the interval, shape (..., P); NaN for a prompt without data.

    Assume rewards in [0, 1], weights ``w_v >= 0`` with ``sum_v w_v n_v = 1``, and let m be the observed kernel mean.
    If the current value is p, the visit at lag l has a value of at least ``q_v(p) = max(p - L l, 0)``. The moment
    generating function of a variable in [0, 1] is at most that of the Bernoulli variable with the same mean, so::

        P(mean <= m) <= exp f(t, p)   for every t >= 0,
        f(t, p) = t m + sum_v n_v log(1 - q_v(p) + q_v(p) exp(-t w_v))

    The upper end is the largest p for which ``min_t f(t, p) >= log(delta / 2)``, with ``delta = 1 - level``: larger
    ones are rejected. The lower end is 1 minus the upper end for rewards 1 - Z. Together they miss the value with
    probability at most delta, at every sample size, for any distribution of rewards and any path
    that changes by at most L per step. The influence of rewards on later policies, and so on later values, is ignored.

    Notes
    -----
    f decreases in p, so halving a bracket finds the end; f is convex in t, and Newton's steps find its minimum. Every t
    gives a valid bound, and the result is rejected, so an end can only be too far out: by 1e-6.

    References
    ----------
    Chernoff, H. (1952), A measure of asymptotic efficiency for tests of a hypothesis based on the sum of observations.
    Hoeffding, W. (1963), Probability inequalities for sums of bounded random variables (the comparison with Bernoulli).
    """
    xp, (low, high) = fit.xp, bounds
    width = high - low
    mean = xp.clip((fit.estimate - low) / width, 0.0, 1.0)
    drift = (lipschitz + xp.zeros_like(mean))[..., None] * fit.sample.lag / width
    log_level = math.log((1 - level) / 2)
    upper = _upper_end(mean, fit, drift, log_level, xp)
    lower = 1 - _upper_end(1 - mean, fit, drift, log_level, xp)
    return low + width * lower, low + width * upper


def _upper_end(mean: Array, fit: LinearFit, drift: Array, log_level: float, xp: Namespace) -> Array:
    count, present = fit.sample.count, mean == mean
    weight = xp.where(present[..., None], fit.weight, xp.zeros_like(fit.weight))
    mean = xp.where(present, mean, xp.zeros_like(mean))
    heaviest = xp.max(weight, axis=-1)
    weight = ratio(weight, heaviest[..., None], 0.0, xp)  # relative, so that tilts are of order one
    scaled = ratio(mean, heaviest, 0.0, xp)
    largest = -0.9 * math.log(float(xp.finfo(mean.dtype).smallest_normal))  # exp(-tilt) stays a normal number
    inside, outside = mean, xp.ones_like(mean)
    for _ in range(HALVINGS):
        end = (inside + outside) / 2
        value = xp.clip(end[..., None] - drift, 0.0, 1.0)
        tilt = xp.zeros_like(mean)
        for _ in range(TILTS):
            shrunk = value * xp.exp(-tilt[..., None] * weight)
            share = shrunk / (1 - value + shrunk)
            slope = scaled - xp.sum(count * weight * share, axis=-1)
            curvature = xp.sum(count * weight**2 * share * (1 - share), axis=-1)
            newton = ratio(slope, curvature, xp.sign(slope) * largest, xp)
            # If shares exceed one half, the first steps overshoot into a region without curvature.
            tilt = xp.clip(tilt - xp.clip(newton, -1 - tilt, tilt / 2), 0.0, largest)
        moment = 1 - value + value * xp.exp(-tilt[..., None] * weight)
        rejected = tilt * scaled + xp.sum(count * xp.log(moment), axis=-1) <= log_level
        outside = xp.where(rejected, end, outside)
        inside = xp.where(rejected, inside, end)
    return xp.where(present, outside, xp.full_like(outside, math.nan))
