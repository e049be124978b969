"""A common move of all values, for example after a change of learning rate, detected at the step where it happens."""

from __future__ import annotations

import math
from dataclasses import replace

from kaestat.baselines.filter_arrays import added_up, as_type_of, at_least
from kaestat.baselines.filter_belief import Belief, Moving, shifted
from kaestat.baselines.filter_rates import SHOCK, Rates
from kaestat.core.arrays import Array, namespace, not_negative

SMALLEST_SIZE = 0.05  # of a posterior


def common_shock(mean: Array, size: Array, count: Array, total: Array, rates: Rates, dispersion: Array) -> Array | None:
    """Estimated move of all values in logits: for each prompt from the others, last from all; (..., P + 1).

    The evidence for a shift is that of Bernoulli rewards whose rates were the posterior means, divided by how much more
    a group's mean varies because they are only estimates. It is concave in the shift, so where neither the smallest
    shift upwards nor that downwards is likelier than none, no other is.

    ``mean`` and ``size``, (..., P), are of each prompt's `posterior_mean`; ``count`` and ``total`` of the group, 0
    where the prompt does not count. The result is 0 where no shift is more likely than one, and None where that is so
    for all.
    """
    xp = namespace(mean)
    size = at_least(size, SMALLEST_SIZE)
    mean = mean.clip(1e-6, 1 - 1e-6)
    weight = (1 + 1 / size) / (dispersion + count / size)
    shock = as_type_of(rates.shock, mean)
    middle = shock.shape[0] // 2
    nearest = _gains(mean, count, total, weight, shock[middle - 1 : middle + 1])
    if not bool((nearest > 0).any()):
        return None
    gain = _gains(mean, count, total, weight, shock) + math.log(SHOCK / (1 - SHOCK) / shock.shape[0])
    best = not_negative(xp.max(gain, axis=-2, keepdims=True))
    likely = xp.exp(gain - best)
    some = xp.sum(likely, axis=-2)
    found = xp.where(
        some > xp.exp(-best[..., 0, :]), xp.sum(likely * shock, axis=-2) / xp.where(some > 0, some, 1.0), 0.0
    )
    return found if bool(xp.any(found != 0)) else None


def _gains(mean: Array, count: Array, total: Array, weight: Array, shock: Array) -> Array:
    """Log evidence for each shift against none, from the others of each prompt, and from all; (..., S, P + 1)."""
    xp = namespace(mean)
    mean, count, total, weight = (part[..., None, :] for part in (mean, count, total, weight))
    gain = (total * shock - count * xp.log(1 + mean * (xp.exp(shock) - 1))) * weight
    pooled = added_up(gain, -1)
    return xp.concat([pooled - gain, pooled], axis=-1)


def shocked(belief: Belief, known: Moving, here: Moving, by: Array) -> tuple[Belief, Moving]:
    """A belief and its prior, of earlier steps and of this one, after all values moved ``by`` logits, (..., 1, P)."""
    xp = namespace(by)
    size = known.a + known.b
    factor = xp.exp(by)
    a = size * known.a * factor / (known.b + known.a * factor)
    after, moved = known._replace(a=a, b=size - a), by != 0
    parts = xp.asarray(belief.parts, copy=True)
    for j, shift in enumerate(shifted(belief.parts, known, by, after)):
        parts[..., j, :, :] = xp.where(moved, shift, parts[..., j, :, :])
    prior = {"a": xp.where(moved, after.a, here.a), "b": xp.where(moved, after.b, here.b)}
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
