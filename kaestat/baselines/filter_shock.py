"""A common move of all values, for example after a change of learning rate, detected at the step where it happens."""

from __future__ import annotations

import math
from dataclasses import replace

from kaestat.baselines.filter_arrays import added_up, as_type_of
from kaestat.baselines.filter_belief import LARGEST_COUNT, Belief, Moving
from kaestat.baselines.filter_rates import SHOCK, Rates
from kaestat.core.arrays import Array, namespace, not_negative

SMALLEST_SIZE = 0.05  # of a posterior
CLOSED, LEAST_MOVE = 0.98, 0.1
SPACING, STEPS = 0.5, 8  # logits between two shifts; steps to the farthest


def common_shock(
    mean: Array, size: Array, count: Array, total: Array, rates: Rates, dispersion: Array, before: Array
) -> tuple[Array | None, Array]:
    """Estimated move of all values in logits: for each prompt from the others, last from all; (..., P + 1).

    And what is known of a move that is left, ``before`` and after the step: probabilities of `Rates.shock`, (..., S).
    """
    xp = namespace(mean)
    size = size.clip(SMALLEST_SIZE, math.inf)
    mean = mean.clip(1e-6, 1 - 1e-6)
    weight = (1 + 1 / size) / (dispersion + count / size)
    shock = as_type_of(rates.shock, mean)
    n, none = shock.shape[0], shock.shape[0] // 2
    open_ = before[..., none, None] < CLOSED
    nearest = (_gains(mean, size, count, total, weight, 1) > 0).any(axis=-2) | open_
    if not bool(nearest.any()):
        return None, before
    gain = _gains(mean, size, count, total, weight, STEPS)
    gain = xp.concat([gain[..., :STEPS, :], 0 * gain[..., :1, :], gain[..., STEPS:, :]], axis=-2)
    gain = as_type_of(rates.between, mean) @ gain
    prior = (1 - SHOCK) * before + SHOCK / n
    likely = prior[..., None] * xp.exp(gain - xp.max(gain, axis=-2, keepdims=True))
    likely /= added_up(likely)
    likely = xp.where(nearest[..., None, :], likely, before[..., None])
    found = xp.sum(likely * shock, axis=-2)
    found = xp.where(xp.abs(found) > LEAST_MOVE, found, 0.0)
    came = as_type_of(count > 0, mean)
    left = added_up(came * size / (size + count / dispersion), -1) / added_up(came, -1).clip(1e-9, math.inf)
    place = left * (shock[:, 0] - found[..., -1:])
    place = place.clip(float(shock[0, 0]), float(shock[-1, 0]))
    spacing = float(shock[1, 0] - shock[0, 0])
    share = 1 - xp.abs(place[..., None] - shock[:, 0]) / spacing
    after = (likely[..., None, :, -1] @ share.clip(0.0, 1.0))[..., 0, :]
    after = xp.where(nearest[..., -1:], after, before)
    return (found if bool(xp.any(found != 0)) else None), after


def _gains(mean: Array, size: Array, count: Array, total: Array, weight: Array, steps: int) -> Array:
    """Log evidence for each shift against none, from the others of each prompt, and from all; (..., S, P + 1)."""
    xp, found = namespace(mean), []
    for by in (-SPACING, SPACING):
        moved, each = (mean, size), []
        for _ in range(steps):
            moved = _step(*moved, by)
            gain = total * xp.log(moved[0] / mean) + (count - total) * xp.log((1 - moved[0]) / (1 - mean))
            each.append(gain * weight)
        found += each[::-1] if by < 0 else each
    gain = xp.stack(found, axis=-2)
    pooled = added_up(gain, -1)
    return xp.concat([pooled - gain, pooled], axis=-1)


def _step(mean: Array, size: Array, by: Array | float) -> tuple[Array, Array]:
    """Mean and size of a Beta distribution after its logits move by so much, at most half a logit.

    The moments of a value V whose logit moves change by E V (1 - V) and 2 E V^2 (1 - V) per logit. This is a step of
    the midpoint rule for the Beta distribution that has these moments all the way.
    """
    half = by / 2
    middle = mean + half * mean * (1 - mean) * size / (size + 1), size - half * (1 - 2 * mean) * size * size / (size + 2)
    mean = mean + by * middle[0] * (1 - middle[0]) * middle[1] / (middle[1] + 1)
    return mean, size - by * (1 - 2 * middle[0]) * middle[1] * middle[1] / (middle[1] + 2)


def _moved(a: Array, b: Array, by: Array) -> tuple[Array, Array]:
    """Parameters of Beta distributions after logits move."""
    size = a + b
    mean = a / size
    for _ in range(STEPS):
        mean, size = _step(mean, size, by / STEPS)
    return mean * size, (1 - mean) * size


def shocked(belief: Belief, known: Moving, here: Moving, by: Array) -> tuple[Belief, Moving]:
    """A belief and its prior, of earlier steps and of this one, after all values moved ``by`` logits, (..., 1, P)."""
    xp, moved, share = namespace(by), by != 0, belief.parts[..., 2, :, :]
    a, b = _moved(known.a, known.b, by)
    successes, failures = _moved(*belief.beta(known), by)
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
