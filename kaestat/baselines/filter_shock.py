"""A common move of all values, for example after a change of learning rate, detected at the step where it happens."""

from __future__ import annotations

from dataclasses import replace

from kaestat.baselines.filter_arrays import added_up, as_type_of, at_least, joined, largest, of_rows
from kaestat.baselines.filter_belief import Belief, Moving, in_bounds
from kaestat.baselines.filter_rates import SHOCK, SHOCKS, Rates
from kaestat.core.arrays import Array, namespace, not_negative

SMALLEST_SIZE = 0.05  # of a posterior
SETTLED = 0.98  # probability that no move is left, from which on only a step's own rewards bring one up
SMALLEST_MOVE = 0.1  # logits by which beliefs are moved
TOGETHER = 1024  # prompts for which all shifts fit the processor's cache
HALF = 2  # entries of `SHOCKS` per half a logit
NOTHING_LEFT = dict.fromkeys(("left", "whole"), 1.0 * (SHOCKS == 0))  # the part of the first carry
Left = dict[str, Array]


def before_step(carry: Left, scored: Array, of_last_step: Array) -> Array:
    """For each of `Rates.shock` the probability that all values have moved so much more than beliefs; (..., S).

    The last step has moved the beliefs of its own prompts. Others may have come at a step that did so before, or not.
    """
    if carry["left"] is carry["whole"]:  # as `common_shock` leaves them where there is no shock
        return carry["left"]
    here = as_type_of(scored, carry["left"])
    share = added_up(here * of_last_step, -1) / at_least(added_up(here, -1), 1.0)
    return carry["left"] + (1 - share) / 2 * (carry["whole"] - carry["left"])


def common_shock(
    mean: Array, size: Array, count: Array, total: Array, rates: Rates, before: Array, since: Array, dispersion: Array
) -> tuple[Array | None, Left]:
    """Estimated move of all values in logits, for each prompt from the others, last from all; (..., P + 1).

    And what is known after the step of a move that is left: for the beliefs that the step moves, and for others. So a
    move that was estimated too large, or where there is none, is taken back once the next rewards say so.

    The evidence for a shift is that of Bernoulli rewards at the means that it leaves, divided by how much more a
    group's mean varies because the posterior means are only estimates. It is concave in the shift, so where neither
    half a logit upwards nor downwards is likelier than none, no larger one is.

    ``mean`` and ``size``, (..., P), are of each prompt's `posterior_mean`; ``count`` and ``total`` of the group, 0
    where the prompt does not count. ``before`` is from `before_step`. ``since``, (..., 1), is the share of a return
    of all prompts that has passed since the last step: a step of few prompts is rarely the first after a shock. The
    estimate is the posterior mean. It is 0 where that is small, and None where that is so for all.
    """
    xp = namespace(mean)
    size = at_least(size, SMALLEST_SIZE)
    mean = mean.clip(1e-6, 1 - 1e-6)
    weight = (1 + 1 / size) / (dispersion + count / size)
    shock = as_type_of(rates.shock, mean)
    none = shock.shape[0] // 2
    asked = before[..., none, None] < SETTLED
    if not bool(asked.all()):
        nearest = shock[none - HALF : none + HALF + 1 : 2 * HALF] * (size / (size + 1))[..., None, :]
        asked = asked | (_of_others([_gain(nearest, mean, count, total, weight)])[0] > 0).any(-2)
        if not bool(asked.any()):
            return None, dict.fromkeys(NOTHING_LEFT, before)
    gains, found, chance = [], [], SHOCK * since
    for rows in [slice(first, first + TOGETHER) for first in range(0, max(mean.shape[-1], 1), TOGETHER)]:
        m, n, *rest = (of_rows(part, rows) for part in (mean, size, count, total, weight))
        by = _of_mean((m * n)[..., None, :], ((1 - m) * n)[..., None, :], shock)
        gains.append(_gain(by, m, *rest))
    for gain in _of_others(gains):
        gain -= largest(gain)
        likely = xp.exp(gain)
        likely *= ((1 - chance) * before + chance / shock.shape[0])[..., None]
        likely /= added_up(likely)
        found.append(added_up(likely * shock)[..., 0, :])
    found = joined(found)
    found = xp.where(asked & (xp.abs(found) > SMALLEST_MOVE), found, 0.0)
    # The step's own rewards move the beliefs too, so they leave a smaller share of what is left.
    came = as_type_of(count > 0, mean)
    share = added_up(came * size / (size + count / dispersion), -1) / at_least(added_up(came, -1), 1.0)
    place = (share * (shock[:, 0] - found[..., -1:])).clip(shock[0, 0], shock[-1, 0])
    onto = not_negative(1 - xp.abs(place[..., None] - shock[:, 0]) / (shock[1, 0] - shock[0, 0]))
    whole = likely[..., -1]
    after = {"left": (whole[..., None, :] @ onto)[..., 0, :], "whole": whole}
    after = {name: xp.where(asked[..., -1:], array, before) for name, array in after.items()}
    return found if bool((found != 0).any()) else None, after


def _gain(by: Array, mean: Array, count: Array, total: Array, weight: Array) -> Array:
    """Log evidence of each prompt for each shift against none, (..., S, P).

    ``by``, (..., S, P), is how much a shift moves the logit of each mean.
    """
    xp = namespace(by)
    mean, count, total, weight = (part[..., None, :] for part in (mean, count, total, weight))
    gain = xp.exp(by)
    gain -= 1
    gain *= mean
    gain += 1
    return (total * by - count * xp.log(gain)) * weight


def _of_others(gains: list[Array]) -> list[Array]:
    """Sums of what some prompts at a time say, (..., S, P): over the others of each, and last over all."""
    pooled = sum(added_up(gain, -1) for gain in gains)
    rest = [pooled - gain for gain in gains]
    rest[-1] = namespace(pooled).concat([rest[-1], pooled], axis=-1)
    return rest


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
    ratio = a * half
    ratio += b / half
    ratio *= ratio
    ratio /= a + b + 1
    root = ratio + 4
    root *= ratio
    ratio += root**0.5
    ratio /= 2
    return ratio


def shifted(beta: Array, by: Array) -> Array:
    """Parameters of the Beta distributions, (..., 2, M, P), after all logits move ``by``, (..., 1, P)."""
    xp, a, b = namespace(by), beta[..., 0, :, :], beta[..., 1, :, :]
    by = _of_mean(a, b, by)
    a, size = a * xp.exp(by), _size_after(a, b, by)
    size /= a + b
    return xp.stack([a * size, b * size], axis=-3)


def shocked(belief: Belief, known: Moving, here: Moving, by: Array) -> tuple[Belief, Moving]:
    """A belief and its prior, of earlier steps and of this one, after all values moved ``by`` logits, (..., 1, P)."""
    xp, moved, share = namespace(by), (by != 0)[..., None, :, :], belief.parts[..., 2:, :, :]
    prior, both = shifted(known.prior, by), shifted(belief.beta(known), by)
    both -= share * prior
    parts = xp.asarray(belief.parts, copy=True)
    parts[..., :2, :, :] = xp.where(moved, in_bounds(both), parts[..., :2, :, :])
    return replace(belief, parts=parts), here._replace(prior=xp.where(moved, prior, here.prior))


def posterior_mean(belief: Belief, known: Moving) -> tuple[Array, Array]:
    """Mean of each prompt's posterior, and the size of the Beta distribution that matches its moments; (..., P)."""
    both = belief.beta(known)
    a, b = both[..., 0, :, :], both[..., 1, :, :]
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
