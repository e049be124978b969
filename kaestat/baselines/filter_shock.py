"""A common move of all values, for example after a change of learning rate, detected at the step where it happens."""

from __future__ import annotations

import math
from dataclasses import replace

from kaestat.baselines.filter_arrays import added_up, as_type_of, largest
from kaestat.baselines.filter_belief import LARGEST_COUNT, Belief, Moving
from kaestat.baselines.filter_rates import SHOCK, Rates
from kaestat.core.arrays import Array, namespace, not_negative

SMALLEST_SIZE = 0.05  # of a posterior
SETTLED = 0.98  # probability of no move that is left, from which on only its own evidence brings one up
SMALLEST_MOVE = 0.1  # logits by which beliefs are moved
NEAREST = 2  # from no shift to one of half a logit, in `SHOCKS`


def common_shock(
    mean: Array, size: Array, count: Array, total: Array, rates: Rates, dispersion: Array, before: Array
) -> tuple[Array | None, dict[str, Array]]:
    """Estimated move of all values in logits, for each prompt from the others, last from all; (..., P + 1).

    And what the step leaves to be known: for each of `Rates.shock`, the probability that all values have moved so much
    more than beliefs have, (..., S); ``before`` is that of the step before. So a move that was taken for larger than it
    is, or for one where there is none, is taken back once the next rewards say so.

    The evidence for a shift is that of Bernoulli rewards at the means that it leaves, divided by how much more a
    group's mean varies because the posterior means are only estimates. It is concave in the shift, so where neither
    half a logit upwards nor downwards is likelier than none, no larger one is.

    ``mean`` and ``size``, (..., P), are of each prompt's `posterior_mean`; ``count`` and ``total`` of the group, 0
    where the prompt does not count. The estimate is 0 where it is small, and None where that is so for all.
    """
    xp = namespace(mean)
    size = size.clip(SMALLEST_SIZE, math.inf)
    mean = mean.clip(1e-6, 1 - 1e-6)
    weight = (1 + 1 / size) / (dispersion + count / size)
    shock = as_type_of(rates.shock, mean)
    none, step = shock.shape[0] // 2, NEAREST
    nearest = shock[none - step : none + step + 1 : 2 * step] * (size / (size + 1))[..., None, :]
    nearest = _gains(mean, count, total, weight, nearest)
    asked = (nearest > 0).any(-2) | (before[..., none, None] < SETTLED)
    if not bool(asked.any()):
        return None, {"left": before, "whole": before}
    by = _of_mean((mean * size)[..., None, :], ((1 - mean) * size)[..., None, :], shock)
    gain = _gains(mean, count, total, weight, by)
    likely = ((1 - SHOCK) * before + SHOCK / shock.shape[0])[..., None]
    likely = likely * xp.exp(gain - largest(gain))
    likely /= added_up(likely)
    found = xp.sum(likely * shock, axis=-2)
    found = xp.where(asked & (xp.abs(found) > SMALLEST_MOVE), found, 0.0)
    # What is left is less and less what values have moved: rewards since then have moved the beliefs.
    counts = as_type_of(count > 0, mean)
    old = added_up(counts * size / (size + count / dispersion), -1) / added_up(counts, -1).clip(1.0, math.inf)
    place = (old * (shock[:, 0] - found[..., -1:])).clip(shock[0, 0], shock[-1, 0])
    share = (1 - xp.abs(place[..., None] - shock[:, 0]) / (shock[1, 0] - shock[0, 0])).clip(0.0, 1.0)
    after = (likely[..., None, :, -1] @ share)[..., 0, :]
    left = {"left": after, "whole": likely[..., -1]}
    left = {name: xp.where(asked[..., -1:], array, before) for name, array in left.items()}
    return found if bool((found != 0).any()) else None, left


def _gains(mean: Array, count: Array, total: Array, weight: Array, by: Array) -> Array:
    """Log evidence for each shift against none, from the others of each prompt, and from all; (..., S, P + 1).

    ``by``, (..., S, P), is how much a shift moves the logit of each mean.
    """
    xp = namespace(mean)
    mean, count, total, weight = (part[..., None, :] for part in (mean, count, total, weight))
    gain = (total * by - count * xp.log(1 + mean * (xp.exp(by) - 1))) * weight
    pooled = added_up(gain, -1)
    return xp.concat([pooled - gain, pooled], axis=-1)


def _of_mean(a: Array, b: Array, by: Array) -> Array:
    """How much the logit of the mean of Beta(a, b) moves if all logits move ``by``.

    The mean and the second moment of a value V change by E V (1 - V) and 2 E V^2 (1 - V) per logit. Where V always has
    the Beta distribution with these moments, its size s keeps ``m (1 - m) s^2 / (s + 1)``, and the logit of its mean m
    moves by ``s / (s + 1)`` per logit: here that of half the way.
    """
    size = a + b
    size = _size_after(a, b, by * (size / (size + 1) / 2))
    return by * (size / (size + 1))


def _size_after(a: Array, b: Array, by: Array) -> Array:
    """Size of the Beta distribution after the logit of its mean moves ``by``; see `_of_mean`."""
    half = namespace(by).exp(by / 2)
    ratio = a * half + b / half
    ratio = ratio * ratio / (a + b + 1)
    return (ratio + (ratio * (ratio + 4)) ** 0.5) / 2


def _shifted(a: Array, b: Array, by: Array) -> tuple[Array, Array]:
    """Parameters of the Beta distributions after all logits move ``by``."""
    by = _of_mean(a, b, by)
    a, size = a * namespace(by).exp(by), _size_after(a, b, by)
    size /= a + b
    return a * size, b * size


def shocked(belief: Belief, known: Moving, here: Moving, by: Array) -> tuple[Belief, Moving]:
    """A belief and its prior, of earlier steps and of this one, after all values moved ``by`` logits, (..., 1, P)."""
    xp, moved, share = namespace(by), by != 0, belief.parts[..., 2, :, :]
    a, b = _shifted(known.a, known.b, by)
    successes, failures = _shifted(*belief.beta(known), by)
    successes -= share * a
    failures -= share * b
    # If one is negative, the other compensates.
    both = [successes + failures.clip(-math.inf, 0.0), failures + successes.clip(-math.inf, 0.0)]
    after = xp.stack(both, axis=-3).clip(0.0, LARGEST_COUNT)
    parts = xp.asarray(belief.parts, copy=True)
    parts[..., :2, :, :] = xp.where(moved[..., None, :, :], after, parts[..., :2, :, :])
    prior = {"a": xp.where(moved, a, here.a), "b": xp.where(moved, b, here.b)}
    return replace(belief, parts=parts), here._replace(**prior)


def posterior_mean(belief: Belief, known: Moving) -> tuple[Array, Array]:
    """Mean of each prompt's posterior, and the size of the Beta distribution that matches its moments; (..., P)."""
    a, b = belief.beta(known)
    size = a + b
    mean = a / size
    middle = added_up(belief.probability * mean)
    spread = b * mean
    spread /= size * (size + 1)
    mean -= middle
    mean *= mean
    spread += mean
    spread *= belief.probability
    middle, variance = middle[..., 0, :], added_up(spread)[..., 0, :]
    return middle, middle * (1 - middle) / (1e-12 + not_negative(variance)) - 1
