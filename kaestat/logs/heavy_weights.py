"""Intervals of gradient noise where a few prompts have most of the weight."""

import math

import numpy as np

from kaestat.core.bootstrap import effective_number, skewed_ends
from kaestat.logs.few_prompts import FEW

FAR = 1.71  # normal quantile of .956: the near end misses in about half a per cent, and the far end may in 4.4


def weighted_ends(
    noise: np.ndarray, weights: np.ndarray | None, se: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of 95 % intervals of mean noise, (M,), with the far one replaced where weights may be log-normal.

    Noise is about proportional to the weight, so it is the product of two: the mean weight of such prompts, and the
    noise per weight ``beta = mean(r) / mean(w)``. A sample that lacks the heaviest prompts still shows the mean and
    variance of log-weights, ``m`` and ``v``, which limit the mean weight: ``m + v / 2`` is normal around its logarithm
    with the variance ``v / C + v^2 / (2 (C - 1))`` (Cox). The error of beta comes from ``r_i - beta w_i``, which may
    have a long tail too (`skewed_ends`). Both combine as squares (Zou and Donner, 2008), with the error of beta
    multiplied by the largest mean weight.

    The end farther from 0 is replaced from 8 prompts on if it is on the side of the long tail, the `effective_number`
    of weights is below half of the prompts, and the skewness of log-weights is above 0 by less than its standard error,
    or below 0 by less than two of these and .5. A tail heavier than log-normal would give an end too near.

    ``noise`` has shape (C, M); ``weights``, (2, C), holds each prompt's mean weight and its contribution to the mean of
    all. ``se`` may include errors in what prompts share, and the new end then does too.

    References
    ----------
    Land (1972), An evaluation of approximate confidence interval estimation methods for lognormal means (Cox's limits).
    Zou and Donner (2008), Construction of confidence limits about effect measures.
    """
    if weights is None or len(noise) < FEW or not weights[0].min() > 0:
        return low, high
    (weight, part), number = weights, len(noise)
    log = np.log(weight) - math.log(weight.mean())
    if effective_number(weight[:, None])[0] >= number / 2:
        return low, high
    skewness, error = np.mean((log - log.mean()) ** 3) / log.std() ** 3, math.sqrt(6 / number)
    if not -min(2 * error, 0.5) < skewness < error:
        return low, high
    variance = log.var(ddof=1)
    error = math.sqrt(variance / number + variance**2 / (2 * (number - 1)))
    most = math.exp(max(0, min(log.mean() + variance / 2 + FAR * error, 300)))  # of the mean weight, over the sample's
    mean, root = noise.mean(axis=0), math.sqrt(number)
    side = np.sign(mean)
    rest = side * (noise - mean - (part / part.mean() - 1)[:, None] * mean)
    zero, reach = np.zeros_like(mean), FAR * rest.std(axis=0, ddof=1) / root
    reach = skewed_ends(zero, -reach, reach, rest)[1] * most
    usual = noise.std(axis=0, ddof=1) / root
    shared = np.divide(se, usual, out=np.ones_like(usual), where=usual > 0)
    far = side * shared * np.hypot(np.abs(mean) * (most - 1), reach)
    long = skewed_ends(zero, zero - 1, zero + 1, side * noise)[1] > 1
    return np.where(long & (side < 0), mean + far, low), np.where(long & (side > 0), mean + far, high)
