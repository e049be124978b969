"""Advantage scalings: what is done to ``reward - value`` before it enters the loss."""

from __future__ import annotations

from collections.abc import Callable

from kaestat.arrays import Array, Groups, ratio

GROUP_STD_EPS = 1e-6  # as in GRPO's published implementations (verl, open-instruct)
WHITEN_EPS = 1e-8


def leave_as_is(advantages: Array, groups: Groups) -> Array:
    """``A``."""
    return advantages


def divide_by_group_std(advantages: Array, groups: Groups) -> Array:
    """``A / (std + 1e-6)`` with the standard deviation (ddof 1) of the row's rewards; lone completions stay as is.

    Parameters
    ----------
    advantages : array, shape (..., P, G)
    groups : Groups
        The rewards that the standard deviation is taken of.
    """
    xp = groups.xp
    present, count = groups.present, groups.count
    mean = ratio(xp.sum(present * groups.reward, axis=-1, keepdims=True), count, 0.0, xp)
    squares = xp.sum(present * (groups.reward - mean) ** 2, axis=-1, keepdims=True)
    std = xp.sqrt(ratio(squares, count - 1, 1.0, xp))
    return advantages / xp.where(count > 1, std + GROUP_STD_EPS, xp.ones_like(std))


def whiten_over_batch(advantages: Array, groups: Groups) -> Array:
    """``(A - mean) / sqrt(var + 1e-8)`` over every completion of the step (variance with ddof 1).

    A step of one completion is returned as is.
    """
    xp = groups.xp
    present = groups.present
    count = xp.sum(present, axis=(-2, -1), keepdims=True)
    mean = ratio(xp.sum(present * advantages, axis=(-2, -1), keepdims=True), count, 0.0, xp)
    variance = ratio(xp.sum(present * (advantages - mean) ** 2, axis=(-2, -1), keepdims=True), count - 1, 1.0, xp)
    return xp.where(count > 1, (advantages - mean) / xp.sqrt(variance + WHITEN_EPS), advantages)


def rescale_informative(advantages: Array, groups: Groups) -> Array:
    """GPG's ``A * B / (B - M)``: B completions in the step, M of them in groups whose rewards are all equal.

    A widely used framework counts completions with non-zero reward instead; the two differ wherever a group is
    mixed. With nothing but all-equal groups the advantages (all 0) are returned as is.
    """
    xp = groups.xp
    present = groups.present
    high = xp.max(xp.where(present > 0, groups.reward, xp.full_like(groups.reward, -xp.inf)), axis=-1, keepdims=True)
    low = xp.min(xp.where(present > 0, groups.reward, xp.full_like(groups.reward, xp.inf)), axis=-1, keepdims=True)
    total = xp.sum(present, axis=(-2, -1), keepdims=True)
    mixed = xp.sum(present * xp.astype(high > low, present.dtype), axis=(-2, -1), keepdims=True)
    return advantages * ratio(total, mixed, 1.0, xp)


SCALINGS: dict[str, Callable[[Array, Groups], Array]] = {
    "none": leave_as_is,
    "group_std": divide_by_group_std,
    "batch_std": whiten_over_batch,
    "informative": rescale_informative,
}
DEVIATION = "deviation"  # of methods whose baseline has one of its own
