"""The range of the rewards: the given one, widened by rewards outside it."""

import math
import warnings

import numpy as np

from kaestat.core.arrays import Array, Groups, namespace


def lies_outside(groups: Groups, known: Array) -> bool:
    """Whether a reward, or a number in the padding, lies outside one of the ranges (..., 2)."""
    reward = groups.reward
    if math.prod(reward.shape) == 0:
        return False
    return bool((reward.min() < known[..., 0].max()) | (reward.max() > known[..., 1].min()))


def widened(groups: Groups, known: Array) -> Array:
    """The range, widened to include the rewards of a step."""
    xp, reward = groups.xp, groups.reward
    here = groups.present > 0 if groups.among is None else (groups.present > 0) & groups.among
    least = xp.min(xp.where(here, reward, xp.full_like(reward, np.inf)), axis=(-2, -1))
    most = xp.max(xp.where(here, reward, xp.full_like(reward, -np.inf)), axis=(-2, -1))
    return xp.stack([xp.minimum(known[..., 0], least), xp.maximum(known[..., 1], most)], axis=-1)


def plain_means(groups: Groups, known: Array, value: Array, count: Array, total: Array) -> Array:
    """Values of a step with rewards outside the range: plain means, with one completion's worth of other prompts.

    A prompt of which the rewards of no *other* lie outside keeps its ``value``, (..., P, G), of rewards taken into the
    range ``known``, (..., 2): which of the two it gets is not decided by its own rewards. ``count`` and ``total``,
    (..., P), are the completions of the past, and the sum of their rewards.
    """
    xp, reward, ends = groups.xp, groups.reward, known[..., None, None, :]
    outside = ((reward < ends[..., 0]) | (reward > ends[..., 1])) & (groups.present > 0)
    outside = xp.astype(xp.any(outside, axis=-1, keepdims=True), reward.dtype)
    mass, carried = groups.other_prompts()
    others, of_others = groups.others()
    target = carried / xp.where(mass > 0, mass, 1.0)
    plain = (total[..., None] + of_others + target) / (count[..., None] + others + 1)
    return xp.where(groups.pooled_others(outside) > 0, plain, value)


def say_widened(low: float, high: float, before: Array, after: Array) -> None:
    """Warn if rewards lie outside the given range, which is [0, 1] in the unit of ``before`` and ``after``."""
    xp = namespace(before)
    if not bool(xp.all(before[..., 0] == 0) & xp.all(before[..., 1] == 1) & xp.any(before != after)):
        return
    reached = [low + (high - low) * float(end) for end in (xp.min(after), xp.max(after))]
    warnings.warn(
        f"rewards: bayes_filter was made for rewards in [{low:g}, {high:g}], and they reach from "
        f"{reached[0]:g} to {reached[1]:g}. It continues with the wider range; give it with "
        "low= and high=. If a few rewards lie far from all others, clip them: they spoil the values of all prompts.",
        stacklevel=2,
    )
