"""Slow, obvious version of the way from values to best baselines: sums over single completions."""

import math
from dataclasses import replace
from statistics import fmean, pvariance

import numpy as np

from tests.helpers.references import KERNELS, kae_eb, per_completion


def kae_eb_from_values(case, *, kernel="triangular", bandwidth=20.0):
    """The other way to use weights: from `kae_eb` without weights to the best baseline; sums over single rewards."""
    k = KERNELS[kernel]
    alike = replace(
        case,
        weights=[[1.0] * len(row) for row in case.rewards],
        past=[[replace(visit, weights=[1.0] * len(visit.rewards)) for visit in visits] for visits in case.past],
    )
    values = kae_eb(alike, kernel=kernel, bandwidth=bandwidth)
    prompts = range(len(case.rewards))

    def past(q):
        """(kernel weight, reward, weight) of the past of prompt q."""
        return [
            (k((case.step - visit.step) / bandwidth), z, w)
            for visit in case.past[q]
            for z, w in zip(visit.rewards, visit.weights, strict=True)
        ]

    def current(q, without=None):
        both = zip(case.rewards[q], case.weights[q], strict=True)
        return [(k(0), z, w) for g, (z, w) in enumerate(both) if g != without]

    def total(rows, of):
        return math.fsum(a * of(z, w) for a, z, w in rows)

    everything = [row for q in prompts for row in past(q) if row[0] > 0]
    alpha, beta = 1.0, 0.0
    if everything:
        root = np.sqrt([a for a, _, _ in everything])
        z, w = (np.array([row[j] for row in everything]) for j in (1, 2))
        if len({z for _, z, _ in everything}) > 1:
            (alpha, beta), *_ = np.linalg.lstsq(root[:, None] * np.stack([np.ones_like(z), z], 1), root * w, rcond=None)
        else:
            alpha = total(everything, lambda z, w: w) / total(everything, lambda z, w: 1)

    def share(rows, numerator, denominator, otherwise=0.0):
        size = total(rows, denominator)
        return total(rows, numerator) / size if size > 0 else otherwise

    def ratio_of_rewards(rows):
        plain, own = share(rows, lambda z, w: z, lambda z, w: 1), share(rows, lambda z, w: w * z, lambda z, w: w)
        line = alpha + beta * plain
        spread = share(rows, lambda z, w: (z - plain) ** 2, lambda z, w: 1)
        far = beta * spread / line if line > 1e-14 * abs(alpha) else math.copysign(math.inf, beta)
        found = plain + far if spread > 1e-14 else plain
        return min(max(found, min([plain, own, *ends])), max([plain, own, *ends]))

    def score(rows):
        r = ratio_of_rewards(rows)
        return total(rows, lambda z, w: w * (z - r))

    seen = [q for q in prompts if total(past(q), lambda z, w: 1) > 0]
    means = [share(past(q), lambda z, w: z, lambda z, w: 1) for q in seen]
    ends = means + [share(past(q), lambda z, w: w * z, lambda z, w: w, m) for q, m in zip(seen, means, strict=True)]
    squares = [share(past(q), lambda z, w: z * z, lambda z, w: 1) for q in seen]
    lightest = min((share(past(q), lambda z, w: w, lambda z, w: 1) for q in seen), default=0.0)
    slope = 0.0
    if seen and pvariance(means) > 1e-12:
        slope = sum((m - fmean(means)) * s for m, s in zip(means, squares, strict=True)) / pvariance(means) / len(seen)

    def prior(value):
        if not seen:
            return value
        v = min(max(value, min(means)), max(means))
        spread = max(fmean(squares) + slope * (v - fmean(means)) - v * v, 0.0)
        weight = max(alpha + beta * v, lightest)
        b0 = value + (beta * spread / weight if weight > 0 else 0.0)
        return min(max(b0, min([value, *ends])), max([value, *ends]))

    def moments(p):
        rest = {q: past(q) + current(q) for q in prompts if q != p}
        weigh = [rows for rows in rest.values() if total(rows, lambda z, w: w) > 0]
        if len(weigh) <= 5:
            return 0.0, 1.0
        explained = 0.0
        for rows in weigh:
            size, mass = total(rows, lambda z, w: 1), total(rows, lambda z, w: w)
            mean = total(rows, lambda z, w: z) / size
            spread = sum(a * (z - mean) ** 2 for a, z, _ in rows) / size
            apart = (ratio_of_rewards(rows) - mean) ** 2 / spread if spread > 1e-14 else 0.0
            explained += mass**2 / size * (1 + apart)
        psi = min(max(1 - explained / sum(total(rows, lambda z, w: w * w) for rows in weigh), 0.0), 1.0)
        q = sum(a * a * w * w * (z - ratio_of_rewards(rows)) ** 2 for rows in weigh for a, z, w in rows)
        mass = [total(rows, lambda z, w: w) for rows in weigh]
        spread = max(sum(score(rows) ** 2 for rows in weigh) - psi * q, 0.0) / sum(m * m for m in mass)
        return psi * q / sum(mass), spread

    def value(p, g):
        noise, spread = moments(p)
        rows = past(p) + current(p, without=g)
        size = total(rows, lambda z, w: w) * spread + noise
        found = prior(values[p][g]) + (score(rows) * spread / size if size > 0 else 0.0)
        held = [values[p][g], share(rows, lambda z, w: w * z, lambda z, w: w, values[p][g]), *ends]
        return min(max(found, min(held)), max(held))

    return per_completion(case, value)
