"""Score (Wilson-type) interval for a kernel mean of rewards of known range."""

from kaestat.core.arrays import Array
from kaestat.inference.linear_fit import LinearFit


def score_interval(
    fit: LinearFit, quantile: float, bounds: tuple[float, float], bias: float | Array = 0.0
) -> tuple[Array, Array]:
    """Both ends of the interval, shape (..., P).

    Rewards in [0, 1] with mean p have a variance of at most ``p (1 - p)``, with equality for rewards 0 and 1. The
    interval contains every p within ``quantile`` of *its own* standard errors from the kernel mean m with
    effective size n (Wilson, 1927)::

        (m - p)^2 <= z^2 p (1 - p) / n       p = [m + c +- sqrt(2 c m (1 - m) + c^2)] / (1 + 2 c),   c = z^2 / (2 n)

    So it has a positive width even if all rewards are equal, unlike an interval with an estimated standard error. The
    lower end is computed as ``m^2 / [m + c + sqrt(...)]``, which is equal, and the upper end as the lower one of
    failures, so that an end at 0 or 1 is exact.

    Parameters
    ----------
    fit : LinearFit
        A kernel mean.
    quantile : float
        z, the normal quantile of the level.
    bounds : (a, b)
        Range of the rewards.
    bias : float or array broadcastable to (..., P)
        Worst-case bias; both ends move outwards by it.

    References
    ----------
    Wilson, E. B. (1927), Probable inference, the law of succession, and statistical inference.
    """
    xp, (low, high) = fit.xp, bounds
    width = high - low
    mean = xp.clip((fit.estimate - low) / width, 0.0, 1.0)
    half = quantile**2 / 2 * xp.sum(fit.weight**2 * fit.sample.count, axis=-1)
    spread = xp.sqrt(2 * half * mean * (1 - mean) + half**2)
    lower, failing = (share**2 / (share + half + spread) for share in (mean, 1 - mean))
    upper = 1 - failing
    return xp.clip(low + width * lower - bias, low, None), xp.clip(low + width * upper + bias, None, high)
