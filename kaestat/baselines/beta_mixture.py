"""What a Bayes filter believes of each prompt's value: a discounted Beta distribution for each kind of move.

A belief is an array (4, ..., P, K + 1): the past as a number of completions and the sum of their rewards, the share of
the prior that is left, and the evidence, for K kinds of moves and last for a jump since the last visit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kaestat.core.arrays import Array, as_like, log_beta, namespace, not_negative

# Kinds of moves of a logit from visit to visit: the standard deviation of a walk, and a drift
KINDS = (
    # Walks a factor 2.1 apart: a speed between two costs 2 % of MSE. Slower ones hardly move, faster ones forget all.
    *((walk, 0.0) for walk in (0.03, 0.064, 0.135, 0.29, 0.61, 1.3)),
    (0.1, 0.03),  # All prompts learn: most of the weight on a real log, where it takes 15 % off the MSE at G = 8.
    # Each prompt is learned or forgotten on its own: without these rows such drifts cost 4.7 points of noise at G = 1.
    *((0.05, drift) for drift in (-0.15, 0.15)),
)
RARE = 0.01  # chance that a prompt changes its kind at a visit: it keeps one for 100 visits, more than most runs have
MOST = 1e6  # completions that a past can count as: a drift towards 0 or 1 would let it grow without end
Beta = tuple[Array, Array]  # a and b of Beta distributions


class Learned(NamedTuple):
    """What earlier steps say of all prompts; arrays (..., 1, 1), or (..., 1, K) for K kinds."""

    kinds: Array  # Probability of each kind
    jump: Array  # Probability that a value jumps at a visit
    prior: Beta  # Distribution of values over prompts
    dispersion: Array  # Variance of a reward relative to V (1 - V)


def unknown(like: Array) -> Array:
    """The belief about prompts without a past; ``like`` has the shape (..., P, 1)."""
    first = np.zeros((4, len(KINDS) + 1))
    first[2], first[3, :-1] = 1.0, 1.0
    return namespace(like).stack([0.0 * like + row for row in as_like(first, like)])


def weights(belief: Array, learned: Learned) -> Array:
    """Probabilities of the hypotheses, (..., P, K + 1)."""
    xp = namespace(belief)
    weight = xp.concat([(1 - learned.jump) * learned.kinds, learned.jump], axis=-1) * belief[3]
    return weight / xp.sum(weight, axis=-1, keepdims=True)


def beta_of(belief: Array, prior: Beta, dispersion: Array) -> Beta:
    """The Beta distributions of a belief, with a prior and a dispersion."""
    count, total, share = belief[0] / dispersion, belief[1] / dispersion, belief[2]
    return share * prior[0] + total + 1e-12, share * prior[1] + (count - total) + 1e-12


def moved(belief: Array, learned: Learned) -> Array:
    """The belief one visit later: some prompts change their kind, what has jumped gets one, and logits move."""
    xp, weight, (_, _, prior, dispersion) = namespace(belief), weights(belief, learned), learned
    kinds, jumped, parts = weight[..., :-1], weight[..., -1:], belief[:3, ...]
    stay, enter = (1 - RARE) * kinds / learned.kinds, RARE * xp.sum(kinds, axis=-1, keepdims=True) + jumped
    entering = RARE * xp.sum(kinds * parts[..., :-1], axis=-1, keepdims=True) + jumped * parts[..., -1:]
    evidence = stay + enter
    count, total, share = (stay * parts[..., :-1] + entering) / evidence
    walk, drift = (as_like(column, belief) for column in np.transpose(KINDS))
    # A drift moves the logit of the past and leaves its precision.
    ratio = (total * xp.exp(drift) + count - total) / (count + 1e-12)
    past = total * ratio, (count - total) * ratio * xp.exp(-drift)
    total, failures = (xp.clip(part, 0.0, MOST) for part in past)
    count = total + failures
    # A walk of variance q^2 divides a logit's precision J by 1 + q^2 J: that of the past, and of past and prior.
    a, b = beta_of((count, total, share), prior, dispersion)
    variance = walk**2 * a * b / (a + b) ** 2
    of_past, of_both = 1 + variance * count / dispersion, 1 + variance * (a + b)
    after = xp.stack([count / of_past, total / of_past, share / of_past / of_both, evidence])
    jump = xp.stack([0.0 * jumped, 0.0 * jumped, 0.0 * jumped + 1, 0.0 * jumped + 1])
    return xp.concat([after, jump], axis=-1)


def shifted(a: Array, b: Array, by: Array) -> Beta:
    """The distribution of a value of Beta(a, b) after its logit moves, about; the mean is right to .01.

    The mean m moves by E V (1 - V) per logit, so its logit by s / (s + 1) with s = a + b, here that of half the way.
    The second moment moves by 2 E V^2 (1 - V), so that ``m (1 - m) s^2 / (s + 1)`` stays.
    """
    xp = namespace(a)

    def size_after(by: Array) -> Array:
        square = (a * xp.exp(by / 2) + b * xp.exp(-by / 2)) ** 2 / (a + b + 1)
        return (square + xp.sqrt(square * (square + 4))) / 2

    half_way = size_after(by / 2 * (a + b) / (a + b + 1))
    by = by * half_way / (half_way + 1)
    size, odds = size_after(by), a / b * xp.exp(by)
    return size * odds / (1 + odds), size / (1 + odds)


def likelihood(beta: Beta, count: Array, total: Array) -> Array:
    """Probability of ``total`` successes of ``count`` under the Beta distributions, relative to the largest."""
    a, b = beta
    return relative(log_beta(a + total, b + count - total) - log_beta(a, b))


def mean_and_size(belief: Array, learned: Learned) -> Beta:
    """Mean of the mixture that earlier steps leave, and a + b of a Beta distribution with its variance; (..., P, 1)."""
    (a, b), weight = beta_of(belief, learned.prior, learned.dispersion), weights(belief, learned)
    xp, mean = namespace(belief), a / (a + b)
    middle = xp.sum(weight * mean, axis=-1, keepdims=True)
    spread = mean * (1 - mean) / (a + b + 1) + (mean - middle) ** 2
    return middle, not_negative(middle * (1 - middle) / xp.sum(weight * spread, axis=-1, keepdims=True) - 1)


def relative(log: Array) -> Array:
    """Exponentials relative to the largest along the last axis."""
    xp = namespace(log)
    return xp.exp(log - xp.max(log, axis=-1, keepdims=True))
