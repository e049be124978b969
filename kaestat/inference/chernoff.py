"""Chernoff interval for a weighted mean of bounded rewards, at the worst value path of the Lipschitz class."""

import math

from kaestat.core.arrays import Array, Namespace, ratio
from kaestat.inference.linear_fit import LinearFit

ROUNDS, TILTS = 20, 3  # Newton's steps at most for the end, most often six, and for the tilt within each
FOUND, NARROW = 1e-6, 1e-4  # what Newton's next step would still change; a bracket not worth halving further


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
    f is convex in t, and decreasing and concave in p (as ``log(1 - a q)`` is, and q is convex). The minimum over t
    has the same properties in p, so Newton's steps in p approach the root from above. They start at Hoeffding's bound,
    which is never below it. Steps that leave the bracket are replaced by its middle. The result is the smallest
    rejected p, so an end can only be too far out: by 1e-6, or 1e-4 close to the bounds.

    References
    ----------
    Chernoff, H. (1952), A measure of asymptotic efficiency for tests of a hypothesis based on the sum of observations.
    Hoeffding, W. (1963), Probability inequalities for sums of bounded random variables (the comparison with Bernoulli).
    """
    xp, (low, high) = fit.xp, bounds
    width = high - low
    mean = xp.clip((fit.estimate - low) / width, 0.0, 1.0)
    drift = _per_prompt(lipschitz, xp, fit) * fit.sample.lag / width
    log_level = math.log((1 - level) / 2)
    upper = _upper_end(mean, fit, drift, log_level, xp)
    lower = 1 - _upper_end(1 - mean, fit, drift, log_level, xp)
    return low + width * lower, low + width * upper


def _upper_end(mean: Array, fit: LinearFit, drift: Array, log_level: float, xp: Namespace) -> Array:
    count, known = fit.sample.count, mean == mean
    weight = xp.where(known[..., None], fit.weight, xp.zeros_like(fit.weight))
    mean = xp.where(known, mean, xp.zeros_like(mean))
    heaviest = xp.max(weight, axis=-1)
    weight = ratio(weight, heaviest[..., None], 0.0, xp)  # relative, so that tilts are of order one
    scaled = ratio(mean, heaviest, 0.0, xp)
    largest = -0.9 * math.log(float(xp.finfo(mean.dtype).smallest_normal))  # exp(-tilt) stays a normal number
    size = ratio(xp.sum(weight * count, axis=-1) ** 2, xp.sum(weight**2 * count, axis=-1), 0.0, xp)
    bias = ratio(xp.sum(weight * count * drift, axis=-1), xp.sum(weight * count, axis=-1), 0.0, xp)

    inside, outside = mean, xp.ones_like(mean)
    hoeffding = mean + bias + xp.sqrt(ratio(xp.full_like(mean, -log_level / 2), size, 1.0, xp))
    end = xp.where(hoeffding < 1, hoeffding, (inside + outside) / 2)
    tilt, settled = xp.zeros_like(mean), mean >= 1  # if all rewards are 1, the end is 1
    for _ in range(ROUNDS):
        value = xp.clip(end[..., None] - drift, 0.0, 1.0)
        for _ in range(TILTS):
            shrunk = value * xp.exp(-tilt[..., None] * weight)
            share = shrunk / (1 - value + shrunk)
            slope = scaled - xp.sum(count * weight * share, axis=-1)
            curvature = xp.sum(count * weight**2 * share * (1 - share), axis=-1)
            newton = ratio(slope, curvature, xp.sign(slope) * largest, xp)
            # If shares exceed one half, the first steps overshoot into a region without curvature.
            tilt = xp.clip(tilt - xp.clip(newton, -1 - tilt, tilt / 2), 0.0, largest)
        kept = xp.exp(-tilt[..., None] * weight)
        moment = 1 - value + value * kept
        bound = tilt * scaled + xp.sum(count * xp.log(moment), axis=-1)
        slope = xp.sum(count * xp.astype(end[..., None] > drift, count.dtype) * (1 - kept) / moment, axis=-1)
        rejected = bound <= log_level
        outside = xp.where(rejected, xp.minimum(end, outside), outside)
        inside = xp.where(rejected, inside, xp.maximum(end, inside))
        step = end + ratio(bound - log_level, slope, 2.0, xp)
        settled = settled | (rejected & (outside - step < FOUND)) | (outside - inside < NARROW)
        if bool(xp.all(settled)):
            break
        within = (step > inside) & (step < outside)
        end = xp.where(settled, end, xp.where(within, step, (inside + outside) / 2))
    return xp.where(known, outside, xp.full_like(outside, math.nan))


def _per_prompt(lipschitz: float | Array, xp: Namespace, fit: LinearFit) -> Array:
    return (lipschitz + xp.zeros_like(fit.estimate))[..., None]
