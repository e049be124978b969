"""Intervals of risks where few prompts have most of the reward variance, or of the weight of the gradient."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import betaln, stdtrit

from kaestat.core.bootstrap import effective_number, skewed_ends

FEW = 8.0  # prompts that carry an estimate; with fewer, 95 % intervals may cover too rarely
CONCENTRATIONS = np.geomspace(0.1, 300, 36)  # of the Beta distribution of rates
RARER = np.geomspace(1e-4, 0.5, 81)  # its mean, or 1 minus its mean
FAR = 1.71  # normal quantile of .956: the near end misses in about half a per cent, and the far end may in 4.4


def carried_ends(
    risks: np.ndarray,
    rates: np.ndarray | None,
    pooled: Sequence[bool],
    low: np.ndarray,
    high: np.ndarray,
    *,
    level: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of 95 % intervals of mean risks, (M,), with those replaced that few prompts carry.

    A risk is about proportional to the reward variance, so it is the product of two: the mean reward variance
    ``V = E[p (1 - p)]`` of such prompts, and the risk per variance ``beta = mean(r) / mean(v)``. For prompt i, ``r_i``
    is the risk and ``v_i = k (n - k) / (n (n - 1))`` the unbiased variance. The limits of V (`variance_limits`) allow
    for prompts that the sample lacks. The standard error of beta comes from ``e_i = r_i - beta v_i``. Its square is the
    mean of the usual one and of one that assumes an error in proportion to ``v_i``, which needs fewer prompts. Both
    parts combine as squares (Zou and Donner, 2008), with the error of beta at each end multiplied by V there. A level
    (an MSE) is at least 0, so its interval ends there, or at an estimate below 0.

    Ends are replaced from 8 prompts on, for methods that do not pool prompts, where the `effective_number` of both
    risks and variances is below 8 and two prompts have both rewards.

    ``risks`` has shape (C, M); ``rates``, (2, C), holds successes k and completions n of each prompt, or is None if
    rewards have more than two values. ``level`` says whether the risks are levels, and not differences.

    References
    ----------
    Zou and Donner (2008), Construction of confidence limits about effect measures.
    """
    if rates is None or len(risks) < FEW:
        return low, high
    successes, counts = rates
    variance = successes * (counts - successes) / np.maximum(counts * (counts - 1), 1)
    few = np.isfinite(risks).all(axis=0) & (effective_number(risks) < FEW) & ~np.array(pooled, dtype=bool)
    size, known = len(risks), variance > 0
    if not few.any() or known.sum() < 2 or effective_number(variance[:, None])[0] >= FEW:
        return low, high
    mean = risks.mean(axis=0)
    error = risks - variance[:, None] * (mean / variance.mean())
    usual = (error**2).sum(axis=0) / (size - 1)
    scaled = np.sum((error[known] / variance[known, None]) ** 2, axis=0) / (known.sum() - 1)
    reach = float(stdtrit(size - 1, 0.975)) * np.sqrt((usual + scaled * np.mean(variance**2)) / (2 * size))
    least, most = variance_limits(successes, counts) / variance.mean()
    least, most = min(least, 1.0), max(most, 1.0)
    center = np.abs(mean)
    far = center + np.hypot(center * (most - 1), reach * most)
    near = center - np.hypot(center * (1 - least), reach * least)
    near = np.minimum(near, (center - reach) * np.where(center < reach, most, 1))  # 0 is inside if beta may be 0
    below, above = np.where(mean < 0, -far, near), np.where(mean < 0, -near, far)
    if level:
        below = np.maximum(below, np.minimum(mean, 0))
    return np.where(few, below, low), np.where(few, above, high)


def variance_limits(successes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """2.5 % and 97.5 % quantiles of the mean reward variance ``E[p (1 - p)]`` of prompts such as these, shape (2,).

    Rates are Beta distributed. Flat priors, on a grid: the logarithms of the concentration and of the mean rate of the
    rarer reward.
    """
    (seen, of), times = np.unique(np.stack([successes, counts]), axis=1, return_counts=True)
    mean = np.concatenate([RARER, 1 - RARER[:-1]])[:, None]
    log = np.empty((len(CONCENTRATIONS), len(mean)))
    for row, total in enumerate(CONCENTRATIONS):
        a, b = mean * total, (1 - mean) * total
        log[row] = (betaln(seen + a, of - seen + b) - betaln(a, b)) @ times
    variance = (mean * (1 - mean)).T * (CONCENTRATIONS / (CONCENTRATIONS + 1))[:, None]
    order = np.argsort(variance, axis=None)
    share = np.cumsum(np.exp(log - log.max()).ravel()[order])
    return np.asarray(variance.ravel()[order][np.searchsorted(share, share[-1] * np.array([0.025, 0.975]))])


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
    rest = side * (noise - (part / part.mean())[:, None] * mean)
    zero, reach = np.zeros_like(mean), FAR * rest.std(axis=0, ddof=1) / root
    reach = skewed_ends(zero, -reach, reach, rest)[1] * most
    usual = noise.std(axis=0, ddof=1) / root
    shared = np.divide(se, usual, out=np.ones_like(usual), where=usual > 0)
    far = side * shared * np.hypot(np.abs(mean) * (most - 1), reach)
    long = skewed_ends(zero, zero - 1, zero + 1, side * noise)[1] > 1
    return np.where(long & (side < 0), mean + far, low), np.where(long & (side > 0), mean + far, high)
