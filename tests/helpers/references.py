"""Slow, obvious versions of every estimator, written from the design's table and the papers with plain loops.

They share nothing with the library: every completion of the past is looked at one by one, every window is the whole
past, and linear fits go through ``numpy.linalg.lstsq`` on single completions. A reference takes a `Case` and returns
one list of values per prompt.
"""

import math
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean


@dataclass(frozen=True)
class PastVisit:
    """The completions of one prompt at one earlier step."""

    step: int
    rewards: list[float]
    weights: list[float]
    divergence: float = 0.0


@dataclass(frozen=True)
class Case:
    """One training step with everything that was known before it.

    ``past[p]`` are the visits of prompt p, oldest first; ``earlier`` are the steps of the whole run before this one,
    as lists of (prompt, rewards), for the estimators that also learn from other prompts' past.
    """

    step: int
    prompts: list[str]
    rewards: list[list[float]]
    weights: list[list[float]]
    past: list[list[PastVisit]]
    earlier: list[list[tuple[str, list[float]]]] = field(default_factory=list)


KERNELS = {
    "triangular": lambda u: 2 * max(1 - u, 0),
    "uniform": lambda u: 1.0 if u < 1 else 0.0,
    "epanechnikov": lambda u: 1.5 * max(1 - u * u, 0),
    "exponential": lambda u: math.exp(-u),
    "half-normal": lambda u: math.sqrt(2 / math.pi) * math.exp(-u * u / 2),
}


def weighted_mean(values, weights, otherwise=0.0):
    """``sum w z / sum w``, or ``otherwise`` where nothing weighs anything."""
    mass = math.fsum(weights)
    return math.fsum(w * z for w, z in zip(weights, values, strict=True)) / mass if mass > 0 else otherwise


def others(items, g):
    """All but the g-th."""
    return [item for k, item in enumerate(items) if k != g]


def per_completion(case, value):
    """``value(p, g)`` for every completion."""
    return [[value(p, g) for g in range(len(rewards))] for p, rewards in enumerate(case.rewards)]


def other_prompts_mean(case, p):
    """Weighted mean reward of every other prompt's completions at this step, 0 if there are none."""
    rewards = [z for q, row in enumerate(case.rewards) if q != p for z in row]
    weights = [w for q, row in enumerate(case.weights) if q != p for w in row]
    return weighted_mean(rewards, weights)


def group_mean(case, *, without_own):
    def value(p, g):
        if without_own:
            return weighted_mean(others(case.rewards[p], g), others(case.weights[p], g))
        return weighted_mean(case.rewards[p], case.weights[p])

    return per_completion(case, value)


def kae(case, *, kernel="triangular", bandwidth=10.0, normalization="nadaraya-watson", cold_start="batch_mean"):
    """Algorithm 1 of the paper; ``bandwidth`` a number of steps or a function of (case, p)."""
    k = KERNELS[kernel]

    def value(p, g):
        b = bandwidth(case, p) if callable(bandwidth) else bandwidth
        numerator, nadaraya_watson, history = 0.0, 0.0, 0.0
        for visit in case.past[p]:
            for z, w in zip(visit.rewards, visit.weights, strict=True):
                numerator += k((case.step - visit.step) / b) * w * z
                nadaraya_watson += k((case.step - visit.step) / b) * w
                history += w
        rest = others(case.weights[p], g)
        numerator += k(0) * sum(w * z for w, z in zip(rest, others(case.rewards[p], g), strict=True))
        if normalization == "nadaraya-watson":
            mass = nadaraya_watson + k(0) * sum(rest)
        else:
            mass = b / max(case.step, 1) * history + k(0) * sum(rest)
        if mass > 0:
            return numerator / mass
        return other_prompts_mean(case, p) if cold_start == "batch_mean" else cold_start

    return per_completion(case, value)


def kae_eb(case, *, kernel="triangular", bandwidth=20.0, cold_start="batch_mean"):
    """Kernel mean, moved along the others' common drift, shrunk to their pooled ratio; sums over single rewards."""
    k = KERNELS[kernel]

    def completions(q, without=None):
        """(lag, reward, kernel weight, completion weight) of prompt q."""
        rows = [
            (case.step - visit.step, z, k((case.step - visit.step) / bandwidth), w)
            for visit in case.past[q]
            for z, w in zip(visit.rewards, visit.weights, strict=True)
        ]
        current = zip(case.rewards[q], case.weights[q], strict=True)
        return rows + [(0, z, k(0), w) for g, (z, w) in enumerate(current) if g != without]

    def mean(rows, of):
        return sum(a * w * of(lag, z) for lag, z, a, w in rows) / sum(a * w for _, _, a, w in rows)

    def inverse_size(rows):
        return sum(a * a for _, _, a, _ in rows) / sum(a for _, _, a, _ in rows) ** 2

    def per_completion_of(rows, of):
        return sum(a * of(lag, z, w) for lag, z, a, w in rows) / sum(a for _, _, a, _ in rows)

    def past_variance(q):
        rows = completions(q)[: sum(len(visit.rewards) for visit in case.past[q])]
        if not any(a * w for _, _, a, w in rows):
            return 0.0
        return max(mean(rows, lambda lag, z: z * z) - mean(rows, lambda lag, z: z) ** 2, 0.0)

    @cache
    def from_others(p):
        """Slope per unit of f, target, sigma^2 of W (Z - target), and tau^2 of its means, over squared weights."""
        rest = {q: completions(q) for q in range(len(case.rewards)) if q != p}
        rest = {q: rows for q, rows in rest.items() if any(a * w for _, _, a, w in rows)}
        size = len(rest)

        def each(of):
            return {q: per_completion_of(rows, of) for q, rows in rest.items()}

        if not rest:
            return 0.0, 0.0, 0.0, 0.0
        level = {q: mean(rows, lambda lag, z: z) for q, rows in rest.items()}
        lags = {q: mean(rows, lambda lag, z: lag) for q, rows in rest.items()}
        f = {q: past_variance(q) for q in rest}
        sxz = [sum(a * w * (lag - lags[q]) * (z - level[q]) for lag, z, a, w in rows) for q, rows in rest.items()]
        fsxx = [f[q] * sum(a * w * (lag - lags[q]) ** 2 for lag, _, a, w in rows) for q, rows in rest.items()]
        slope = -sum(sxz) / sum(fsxx) if sum(fsxx) > 0 else 0.0
        z2 = sum(sxz) ** 2 / sum(s * s for s in sxz) if any(sxz) else 0.0
        slope *= max(1 - 4 / z2, 0.0) if z2 > 0 else 0.0
        weight, carried = each(lambda lag, z, w: w), each(lambda lag, z, w: w * z)
        moved = each(lambda lag, z, w: w * lag)
        target = sum(carried[q] + slope * f[q] * moved[q] for q in rest) / sum(weight.values())
        if size <= 5:
            return slope, target, 0.0, 0.0
        inverse = {q: inverse_size(rows) for q, rows in rest.items()}
        freedom = sum(1 - x for x in inverse.values() if x < 1 - 1e-9)
        squares, means = each(lambda lag, z, w: (w * (z - target)) ** 2), each(lambda lag, z, w: w * (z - target))
        scatter = sum(squares.values()) - sum(mean * mean for mean in means.values())
        sigma2 = max(scatter, 0.0) / freedom if freedom > 0 else 0.0
        v = sigma2 * fmean(inverse.values())
        pooled = sum(carried.values()) / sum(weight.values())
        t = max(sum((carried[q] - pooled * weight[q]) ** 2 for q in rest) / (size - 5) - v, 0.0)
        unit = sum(w * w for w in weight.values()) / sum(weight.values())
        return slope, target, sigma2, (t * (1 + 1 / size) + v / size) / unit

    def value(p, g):
        slope, target, sigma2, tau2 = from_others(p)
        if cold_start != "batch_mean":
            target = cold_start
        rows = completions(p, without=g)
        if not any(a * w for _, _, a, w in rows):
            return target
        moved = mean(rows, lambda lag, z: z) + slope * past_variance(p) * mean(rows, lambda lag, z: lag)
        noise = sigma2 * inverse_size(rows)
        tau2 *= per_completion_of(rows, lambda lag, z, w: w)
        return moved + (noise / (noise + tau2) if noise + tau2 > 0 else 0.0) * (target - moved)

    return per_completion(case, value)
