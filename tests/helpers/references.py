"""Slow, obvious versions of every estimator, written from the design's table and the papers with plain loops.

They share nothing with the library: every completion of the past is looked at one by one, every window is the whole
past, and linear fits go through ``numpy.linalg.lstsq`` on single completions. A reference takes a `Case` and returns
one list of values per prompt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import fmean, pvariance, variance

import numpy as np
from scipy.interpolate import BSpline


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


def zero(case):
    return per_completion(case, lambda p, g: 0.0)


def batch_mean(case, *, without_own):
    def value(p, g):
        kept = [
            (z, w)
            for q in range(len(case.rewards))
            for k, (z, w) in enumerate(zip(case.rewards[q], case.weights[q], strict=True))
            if not (without_own and (q, k) == (p, g))
        ]
        return weighted_mean([z for z, _ in kept], [w for _, w in kept])

    return per_completion(case, value)


def group_mean(case, *, without_own):
    def value(p, g):
        if without_own:
            return weighted_mean(others(case.rewards[p], g), others(case.weights[p], g))
        return weighted_mean(case.rewards[p], case.weights[p])

    return per_completion(case, value)


def opo(case):
    """verl's ``compute_opo_outcome_advantage`` (0.9.1, ``verl/trainer/ppo/core_algos.py``): ``sum L r / sum L``."""
    baselines = []
    for scores, lengths in zip(case.rewards, case.weights, strict=True):
        carried = sum(length * score for length, score in zip(lengths, scores, strict=True))
        baselines.append(carried / sum(lengths) if sum(lengths) > 0 else 0.0)
    return per_completion(case, lambda p, g: baselines[p])


def mc_grpo(case):
    """``torch.median`` of the group: the middle reward, of an even number the lower of both."""
    return per_completion(case, lambda p, g: sorted(case.rewards[p])[(len(case.rewards[p]) - 1) // 2])


def qae(case, *, quantile=0.4):
    """The lowest reward of the group that a share ``quantile`` of it does not exceed."""

    def value(p, g):
        row = sorted(case.rewards[p])
        return next(z for z in row if sum(other <= z for other in row) / len(row) >= quantile)

    return per_completion(case, value)


def grpo_passk(case):
    """What verl's advantage, only for the best by its lead over the second, leaves of each reward."""

    def value(p, g):
        own, rest = case.rewards[p][g], others(case.rewards[p], g)
        return own - max(own - max(rest), 0.0) if rest else own

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


def kae_stream(case, *, kernel="triangular", bandwidth=10.0, cold_start="batch_mean"):
    """The paper's one-shot variant: visits weigh alike, whatever their number of completions."""
    k = KERNELS[kernel]

    def value(p, g):
        numerator, mass = 0.0, 0.0
        for visit in case.past[p]:
            if sum(visit.weights) > 0:
                w = k((case.step - visit.step) / bandwidth)
                numerator, mass = numerator + w * weighted_mean(visit.rewards, visit.weights), mass + w
        if sum(others(case.weights[p], g)) > 0:
            current = weighted_mean(others(case.rewards[p], g), others(case.weights[p], g))
            numerator, mass = numerator + k(0) * current, mass + k(0)
        if mass > 0:
            return numerator / mass
        return other_prompts_mean(case, p) if cold_start == "batch_mean" else cold_start

    return per_completion(case, value)


def local_polynomial(case, *, degree, kernel="triangular", bandwidth=10.0):
    """Weighted least squares of single completions on powers of the lag; the intercept."""
    k = KERNELS[kernel]

    def value(p, g):
        rows = [
            (case.step - visit.step, z, k((case.step - visit.step) / bandwidth) * w)
            for visit in case.past[p]
            for z, w in zip(visit.rewards, visit.weights, strict=True)
        ]
        rest = zip(others(case.rewards[p], g), others(case.weights[p], g), strict=True)
        rows += [(0, z, k(0) * w) for z, w in rest]
        rows = [row for row in rows if row[2] > 0]
        if not rows:
            return other_prompts_mean(case, p)
        lag, z, weight = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
        identified = min(degree, len(set(lag)) - 1)
        design = np.vander(lag / max(lag.max(), 1), identified + 1, increasing=True)
        root = np.sqrt(weight)
        return float(np.linalg.lstsq(design * root[:, None], z * root, rcond=None)[0][0])

    return per_completion(case, value)


def sieve(case, *, n_basis=3, degree=1, basis="bspline"):
    """Least squares of single completions, the others of the group standing at time 1."""

    def design(times, size):
        times = np.asarray(times, dtype=float)
        if basis == "polynomial":
            return np.polynomial.legendre.legvander(2 * times - 1, size - 1)
        d = min(degree, size - 1)
        knots = np.concatenate([np.zeros(d), np.linspace(0, 1, size - d + 1), np.ones(d)])
        return BSpline.design_matrix(times, knots, d).toarray()

    def value(p, g):
        past = [visit for visit in case.past[p] if sum(visit.weights) > 0]
        rest_z, rest_w = others(case.rewards[p], g), others(case.weights[p], g)
        if not past:
            return weighted_mean(rest_z, rest_w, other_prompts_mean(case, p))
        first = past[0].step
        time = [(visit.step - first) / (case.step - first) for visit in past]
        size = min(n_basis, len(past))
        while np.linalg.matrix_rank(np.vstack([design(time, size), design([1.0], size)])) > np.linalg.matrix_rank(
            design(time, size)
        ):
            size -= 1
        t, z, w = [], [], []
        for visit, when in zip(past, time, strict=True):
            t += [when] * len(visit.rewards)
            z += visit.rewards
            w += visit.weights
        t, z, w = t + [1.0] * len(rest_z), z + rest_z, w + rest_w
        root = np.sqrt(w)
        coefficients = np.linalg.lstsq(design(t, size) * root[:, None], np.array(z) * root, rcond=1e-12)[0]
        return float(design([1.0], size)[0] @ coefficients)

    return per_completion(case, value)


def james_stein(case, *, paper_factor=False, eps=1e-6):
    """Zeng et al. (2025); lambda and target from the other groups alone.

    With weights, means are weighted and ``(sum w)^2 / sum w^2`` takes the place of the group's size.
    """

    def squared_error_of_mean(z, w):
        n = sum(w) ** 2 / sum(x * x for x in w)
        squares = sum(x * (y - weighted_mean(z, w)) ** 2 for x, y in zip(w, z, strict=True))
        return squares / sum(w) / (n - 1) if n > 1 + 1e-9 else None

    def value(p, g):
        rest = [(z, w) for z, w in others(list(zip(case.rewards, case.weights, strict=True)), p) if sum(w) > 0]
        mine = others(case.rewards[p], g), others(case.weights[p], g)
        if not rest:
            return weighted_mean(*mine)
        means = [weighted_mean(z, w) for z, w in rest]
        noises = [noise for z, w in rest if (noise := squared_error_of_mean(z, w)) is not None]
        v, s = (fmean(noises) if noises else 0.0), pvariance(means)
        shrinkage = v / (v + s + eps) if v + s + eps > 0 else 0.0
        if paper_factor:
            shrinkage *= (len(rest) - 1) / len(rest)
        target = fmean(means)
        return (1 - shrinkage) * weighted_mean(*mine, otherwise=target) + shrinkage * target

    return per_completion(case, value)


def ebpo(case):
    """All rewards and group means so far, this step's included, kept in lists instead of accumulators."""
    rewards = [z for step in case.earlier for _, row in step for z in row] + [z for row in case.rewards for z in row]
    means = [fmean(row) for step in case.earlier for _, row in step] + [fmean(row) for row in case.rewards]
    mu = fmean(rewards)
    sigma2 = variance(rewards) if len(rewards) > 1 else 0.0
    tau2 = variance(means) if len(means) > 1 else 0.0

    def value(p, g):
        noise = sigma2 / len(case.rewards[p])
        shrinkage = noise / (noise + tau2) if noise + tau2 > 0 else 0.0
        return (1 - shrinkage) * fmean(case.rewards[p]) + shrinkage * mu

    return per_completion(case, value)


def krpo_filter(rewards, *, q=1e-5, r=1e-2, x0=0.0, p0=1.0):
    """State and variance after each completion of one group."""
    x, p, path = x0, p0, []
    for z in rewards:
        prior = p + q
        gain = prior / (prior + r)
        x += gain * (z - x)
        p = (1 - gain) * prior
        path.append((x, p))
    return path


def krpo(case):
    return [[x for x, _ in krpo_filter(row)] for row in case.rewards]


def kalman(case, *, drift=2e-4, mean=0.5, variance=1 / 12, reward_variance=None, pseudo=2.0):
    """The filter of a random walk, one step at a time, one group mean at a time."""

    def value(p, g):
        past = [z for visit in case.past[p] for z in visit.rewards]
        m = (sum(past) + pseudo * mean) / (len(past) + pseudo)
        square = (sum(z * z for z in past) + pseudo * mean) / (len(past) + pseudo)
        s2 = max(square - m * m, 1e-4) if reward_variance is None else reward_variance
        x, v, now = mean, variance, None
        visits = [(visit.step, visit.rewards) for visit in case.past[p]] + [(case.step, others(case.rewards[p], g))]
        for step, rewards in visits:
            if now is not None:
                v += drift * (step - now)
            now = step
            if rewards:
                gain = v / (v + s2 / len(rewards))
                x, v = x + gain * (fmean(rewards) - x), (1 - gain) * v
        return x

    return per_completion(case, value)


def spo(case, *, rho=None, half_life=0.06, rho_min=0.875, rho_max=0.96, prior_mean=0.5, prior_count=None):
    """The Beta tracker of each prompt, visit by visit; nothing of the current group enters."""
    count = prior_count if prior_count is not None else 1 / (1 - rho_min)

    def value(p, g):
        a, b = prior_mean * count, (1 - prior_mean) * count
        for visit in case.past[p]:
            keep = rho if rho is not None else min(max(2 ** (-visit.divergence / half_life), rho_min), rho_max)
            a = keep * a + sum(visit.rewards)
            b = keep * b + sum(1 - z for z in visit.rewards)
        return a / (a + b)

    return per_completion(case, value)


def logit_shift(case):
    """The oldest visit's rate, its logit moved by what the oldest visits of the other prompts say."""

    def logit(k):
        rewards = case.past[k][0].rewards
        return math.log((sum(rewards) + 0.5) / (len(rewards) - sum(rewards) + 0.5))

    def expit(x):
        return 1 / (1 + math.exp(-x))

    def shift(beside):
        if not beside:
            return 0.0
        found = -8.0
        for k in range(160):
            here, next_ = (
                sum(sum(case.rewards[j]) - len(case.rewards[j]) * expit(logit(j) + s) for j in beside)
                for s in (-8 + 0.1 * k, -8 + 0.1 * (k + 1))
            )
            found += 0.1 * min(max(here / (here - next_), 0.0), 1.0)
        return found

    def value(p, g):
        if not case.past[p]:
            return other_prompts_mean(case, p)
        return expit(logit(p) + shift([j for j in range(len(case.past)) if j != p and case.past[j]]))

    return per_completion(case, value)


def critic(case, *, features, forgetting=0.98, ridge=1.0):
    """Ridge regression over every earlier completion, each weighted by its age in training steps taken."""
    size = len(next(iter(features.values()))) + 1
    gram, moment = np.diag([1e-9] + [ridge] * (size - 1)), np.zeros(size)
    for age, step in enumerate(reversed(case.earlier)):
        for prompt, rewards in step:
            x = np.array([1.0, *features[prompt]])
            for z in rewards:
                gram = gram + forgetting**age * np.outer(x, x)
                moment = moment + forgetting**age * z * x
    coefficients = np.linalg.solve(gram, moment)
    return per_completion(case, lambda p, g: float(np.array([1.0, *features[case.prompts[p]]]) @ coefficients))


def cluster_blend(case, *, clusters, forgetting=0.9):
    """Rest of the group and mean of the cluster's earlier completions, weighted by how uncertain each is."""

    def moments(cluster):
        """Weight, mean, variance and variance within groups of a cluster's completions; of all for None."""
        groups = [
            (forgetting**age, rewards)
            for age, step in enumerate(reversed(case.earlier))
            for prompt, rewards in step
            if rewards and cluster in (None, clusters[prompt])
        ]
        n = sum(w * len(rewards) for w, rewards in groups)
        if n == 0:
            return 0.0, 0.0, 0.0, 0.0
        mean = sum(w * sum(rewards) for w, rewards in groups) / n
        variance = sum(w * sum((z - mean) ** 2 for z in rewards) for w, rewards in groups) / n
        freedom = sum(w * (len(rewards) - 1) for w, rewards in groups)
        within = sum(w * sum((z - fmean(rewards)) ** 2 for z in rewards) for w, rewards in groups)
        return n, mean, variance, within / freedom if freedom > 0 else variance

    def value(p, g):
        n, mu, variance, within = moments(clusters[case.prompts[p]])
        others = [z for k, z in enumerate(case.rewards[p]) if k != g]
        if not others:
            return mu if n else moments(None)[1]
        if n == 0:
            return fmean(others)
        s, rest = within / len(others), max(variance - within, 0.0) + variance / n
        weight = s / (s + rest) if s + rest > 1e-15 else 1.0
        return (1 - weight) * fmean(others) + weight * mu

    return per_completion(case, value)


def outside_value(case, *, outside, **params):
    """`kae_eb` of each reward less the given value of its prompt, and that value."""
    given = [outside[prompt] for prompt in case.prompts]
    less = replace(
        case,
        rewards=[[z - v for z in rewards] for rewards, v in zip(case.rewards, given, strict=True)],
        past=[
            [replace(visit, rewards=[z - v for z in visit.rewards]) for visit in visits]
            for visits, v in zip(case.past, given, strict=True)
        ],
    )
    return [[v + value for value in row] for row, v in zip(kae_eb(less, **params), given, strict=True)]


def remax(case, *, greedy):
    return per_completion(case, lambda p, g: greedy[case.prompts[p]])


def oracle(case, *, value):
    return per_completion(case, lambda p, g: value[case.prompts[p]])
