"""From a prompt's value to its best baseline, by the relation of weights to rewards over all prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from kaestat.core.arrays import Array, Groups, Namespace, Visits, ratio
from kaestat.core.digits import beyond_rounding, variance_from

ROUNDING = 1e-12  # relative; spreads below this are none


def weighted_value(value: Array, groups: Groups, visits: Visits, kernel: Array, at_zero: float, few: int) -> Array:
    """``E[W Z] / E[W]`` of each prompt, from an estimate of its value ``V = E[Z]``.

    The page of ``kae_eb`` has the equations. The relation of weights to rewards, ``E[W | Z] = alpha + beta Z``, is
    learned from the past of all prompts of the step by kernel-weighted least squares, with ``E[Z^2]`` linear in V over
    the prompts. A prompt that differs from the others moves away from what they say, by the part of its weights not
    explained by alpha and beta: S, which is 0 if weights equal the prediction up to a factor of the prompt. Where that
    prediction reaches 0 between rewards of many values, the ratio r could be anything. So it and the result stay
    within the range of the prompts' means and their ``sum W Z / sum W``, the prompt's own included.

    With constant weights the result is the value. A completion's own reward is not in alpha and beta (past alone), nor
    in nu and tau^2 (other prompts), nor in S (the completion is left out).
    """
    xp, now = groups.xp, groups.present * at_zero
    plain = replace(groups, weight=None)
    square = plain.carried**2
    past = _Sums(
        *(
            xp.vecdot(kernel, column)[..., None]
            for column in (visits.count, visits.total, visits.total_sq, visits.mass, visits.carried)
        )
    )
    current = (groups.present, plain.carried, square, groups.mass, groups.carried)
    whole = past.plus([at_zero * xp.sum(column, axis=-1, keepdims=True) for column in current])
    others = (*plain.others(), xp.sum(square, axis=-1, keepdims=True) - square, *groups.others())
    rest = past.plus([at_zero * column for column in others])

    alpha, beta = _weight_given_reward(groups, past)
    mean = ratio(past.total, past.count, 0.0, xp)
    of_means, of_ratios = (_ends(of, groups, past) for of in (mean, ratio(past.carried, past.mass, mean, xp)))
    ends = xp.minimum(of_means[0], of_ratios[0]), xp.maximum(of_means[1], of_ratios[1])
    r, rest_r = (_ratio_of_rewards(sums, alpha, beta, ends, xp) for sums in (whole, rest))
    score, rest_score = whole.carried - r * whole.mass, rest.carried - rest_r * rest.mass
    noise = _noise(whole, r, groups, visits, kernel, now, xp)
    spread = xp.clip(groups.pooled_others(score**2) - noise, 0.0, None)
    spread = ratio(spread, groups.pooled_others(whole.mass**2), 0.0, xp)
    noise = ratio(noise, groups.pooled_others(whole.mass), 0.0, xp)
    alone = groups.pooled_others(xp.astype(whole.mass > 0, noise.dtype)) <= few
    noise, spread = xp.where(alone, xp.zeros_like(noise), noise), xp.where(alone, xp.ones_like(spread), spread)
    some = groups.pooled(xp.astype(past.count > 0, value.dtype)) > 0
    least, most = (xp.where(some, end, value) for end in ends)
    least, most = xp.minimum(least, value), xp.maximum(most, value)
    prior = value + _added_to_value(value, groups, past, alpha, beta, of_means)
    prior = xp.minimum(xp.maximum(prior, least), most)
    found = prior + ratio(rest_score * spread, rest.mass * spread + noise, 0.0, xp)
    own = ratio(rest.carried, rest.mass, value, xp)
    return xp.minimum(xp.maximum(found, xp.minimum(least, own)), xp.maximum(most, own))


@dataclass(frozen=True, eq=False)
class _Sums:
    """Kernel-weighted sums over completions of 1, Z, Z^2, W and W Z; (..., P, 1), or one for each completion."""

    count: Array
    total: Array
    total_sq: Array
    mass: Array
    carried: Array

    def plus(self, columns: list[Array]) -> _Sums:
        return _Sums(*(getattr(self, own.name) + column for own, column in zip(fields(self), columns, strict=True)))


def _weight_given_reward(groups: Groups, past: _Sums) -> tuple[Array, Array]:
    """alpha and beta, (..., 1, 1); 1 and 0 without any past."""
    xp = groups.xp
    n, t, t2, w, wz = (groups.pooled(getattr(past, column.name)) for column in fields(past))
    spread = n * t2 - t**2
    spread = xp.where(spread > ROUNDING * n * t2, spread, xp.zeros_like(spread))
    beta = ratio(n * wz - t * w, spread, 0.0, xp)
    return ratio(w - beta * t, n, 1.0, xp), beta


def _ends(of: Array, groups: Groups, past: _Sums) -> tuple[Array, Array]:
    """The smallest and the largest of the prompts with a past, (..., 1, 1) each; 0 without any."""
    xp, seen = groups.xp, past.count > 0
    least = xp.min(xp.where(seen, of, xp.full_like(of, math.inf)), axis=-2, keepdims=True)
    most = xp.max(xp.where(seen, of, xp.full_like(of, -math.inf)), axis=-2, keepdims=True)
    return xp.where(least <= most, least, 0.0), xp.where(least <= most, most, 0.0)


def _ratio_of_rewards(sums: _Sums, alpha: Array, beta: Array, ends: tuple[Array, Array], xp: Namespace) -> Array:
    """``E[W Z] / E[W]`` of a prompt's rewards, were weights alpha + beta Z."""
    mean = ratio(sums.total, sums.count, 0.0, xp)
    own = ratio(sums.carried, sums.mass, mean, xp)
    moved = beta * variance_from(ratio(sums.total_sq, sums.count, 0.0, xp), mean)
    weight = beyond_rounding(alpha + beta * mean, xp.abs(alpha))
    least, most = (of(of(end, mean), own) for of, end in zip((xp.minimum, xp.maximum), ends, strict=True))
    far = xp.where(moved > 0, most, xp.where(moved < 0, least, mean)) - mean  # where the line is not above 0
    return xp.minimum(xp.maximum(mean + ratio(moved, weight, far, xp), least), most)


def _noise(whole: _Sums, r: Array, groups: Groups, visits: Visits, kernel: Array, now: Array, xp: Namespace) -> Array:
    """Sum over the other prompts of psi q; (..., P, 1)."""

    def total(of_visits: Array, of_completions: Array, power: int) -> Array:
        return xp.vecdot(kernel**power, of_visits)[..., None] + xp.sum(
            now**power * of_completions, axis=-1, keepdims=True
        )

    mass, carried = groups.mass, groups.carried
    mean = ratio(whole.total, whole.count, 0.0, xp)
    apart = ratio((r - mean) ** 2, variance_from(ratio(whole.total_sq, whole.count, 0.0, xp), mean), 0.0, xp)
    explained = ratio(whole.mass**2, whole.count, 0.0, xp) * (1 + apart)
    of_all = groups.pooled_others(total(visits.mass_sq, mass**2, 1))
    share = 1 - ratio(groups.pooled_others(explained), of_all, 1.0, xp)
    squares = total(visits.mass_sq_carried_sq, carried**2, 2) - 2 * r * total(visits.mass_sq_carried, mass * carried, 2)
    squares = squares + r**2 * total(visits.mass_sq, mass**2, 2)
    return xp.clip(share, 0.0, 1.0) * groups.pooled_others(xp.clip(squares, 0.0, None))


def _added_to_value(
    value: Array, groups: Groups, past: _Sums, alpha: Array, beta: Array, ends: tuple[Array, Array]
) -> Array:
    """``beta (E[Z^2] - V^2) / (alpha + beta V)``, V within the range of the prompts' means."""
    xp = groups.xp
    seen = xp.astype(past.count > 0, value.dtype)
    mean, mean_sq = ratio(past.total, past.count, 0.0, xp), ratio(past.total_sq, past.count, 0.0, xp)
    size = groups.pooled(seen)
    center, level = (ratio(groups.pooled(column), size, 0.0, xp) for column in (mean, mean_sq))
    away = (mean - center) * seen
    spread = groups.pooled(away**2)
    spread = xp.where(spread > ROUNDING * level, spread, xp.zeros_like(spread))
    slope = ratio(groups.pooled(away * mean_sq), spread, 0.0, xp)

    within = xp.minimum(xp.maximum(value, ends[0]), ends[1])
    variance = xp.clip(level + slope * (within - center) - within**2, 0.0, None)
    # A line may cross 0 between rewards of many values; no prompt weighs less than the lightest that was seen.
    lightest, _ = _ends(ratio(past.mass, past.count, 0.0, xp), groups, past)
    return ratio(beta * variance, xp.maximum(alpha + beta * within, lightest), 0.0, xp)
