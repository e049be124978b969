"""Scalings of advantages ``reward - value`` before they enter the loss."""

import re
from collections.abc import Callable
from functools import cache, partial

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.arrays import Array, Groups, ratio
from kaestat.core.checks import check_positive

GROUP_STD_EPS = 1e-6  # as in verl's GRPO
WHITEN_EPS = 1e-8
TRL_EPS = 1e-4
Axes = int | tuple[int, int]


def leave_as_is(advantages: Array, groups: Groups) -> Array:
    """The advantages ``A``, unchanged."""
    return advantages


def divide_by_group_std(advantages: Array, groups: Groups, epsilon: float = GROUP_STD_EPS) -> Array:
    """``A / (std + epsilon)`` with the standard deviation (ddof 1) of the row's rewards; A where these are all equal.

    Parameters
    ----------
    advantages : array, shape (..., P, G)
    groups : Groups
        The rewards for the standard deviation.
    epsilon : float
        1e-6 as in verl; TRL has 1e-4.
    """
    return _over_reward_std(advantages, groups, epsilon, -1)


def divide_by_reward_std(advantages: Array, groups: Groups, epsilon: float = TRL_EPS) -> Array:
    """``A / (std + epsilon)`` with the standard deviation (ddof 1) of all rewards of the step, (..., P, G).

    Group means are not subtracted from the rewards. TRL calls this ``scale_rewards="batch"`` (TRL 1.16.0,
    ``trl/trainer/grpo_trainer.py``, ``_generate_and_score_completions``). A step whose rewards are all equal is
    returned unchanged.
    """
    return _over_reward_std(advantages, groups, epsilon, (-2, -1))


def whiten_over_batch(advantages: Array, groups: Groups, epsilon: float = WHITEN_EPS) -> Array:
    """``(A - mean) / sqrt(var + epsilon)`` over every completion of the step (variance with ddof 1).

    A step of one completion is returned unchanged.
    """
    xp = groups.xp
    count, mean, variance = _moments(advantages, groups, (-2, -1))
    return xp.where(count > 1, (advantages - mean) / xp.sqrt(variance + epsilon), advantages)


def rescale_informative(advantages: Array, groups: Groups) -> Array:
    """GPG's ``A * B / (B - M)``: B completions in the step, M of them in groups whose rewards are all equal.

    A widely used framework counts completions with non-zero reward instead; the two differ wherever a group is
    mixed. With nothing but all-equal groups the advantages (all 0) are returned unchanged.
    """
    xp, present = groups.xp, groups.present
    total = xp.sum(present, axis=(-2, -1), keepdims=True)
    mixed = xp.sum(present * xp.astype(_differ(groups, -1), present.dtype), axis=(-2, -1), keepdims=True)
    return advantages * ratio(total, mixed, 1.0, xp)


def _over_reward_std(advantages: Array, groups: Groups, epsilon: float, axis: Axes) -> Array:
    xp = groups.xp
    _, _, variance = _moments(groups.reward, groups, axis)
    return advantages / xp.where(_differ(groups, axis), xp.sqrt(variance) + epsilon, xp.ones_like(variance))


def _moments(column: Array, groups: Groups, axis: Axes) -> tuple[Array, Array, Array]:
    """Number, mean and variance (ddof 1) of a column over the completions."""
    xp, present = groups.xp, groups.present
    count = xp.sum(present, axis=axis, keepdims=True)
    mean = ratio(xp.sum(present * column, axis=axis, keepdims=True), count, 0.0, xp)
    squares = xp.sum(present * (column - mean) ** 2, axis=axis, keepdims=True)
    return count, mean, ratio(squares, count - 1, 1.0, xp)


def _differ(groups: Groups, axis: Axes) -> Array:
    """Whether the rewards of the completions are not all equal."""
    xp, there = groups.xp, groups.present > 0
    high = xp.max(xp.where(there, groups.reward, xp.full_like(groups.reward, -xp.inf)), axis=axis, keepdims=True)
    low = xp.min(xp.where(there, groups.reward, xp.full_like(groups.reward, xp.inf)), axis=axis, keepdims=True)
    return high > low


Scaling = Callable[..., Array]  # of advantages, groups and, where it divides, epsilon

SCALINGS: dict[str, Scaling] = {
    "none": leave_as_is,
    "group_std": divide_by_group_std,
    "batch_std": whiten_over_batch,
    "informative": rescale_informative,
    "trl_group": partial(divide_by_group_std, epsilon=TRL_EPS),
    "trl_batch": divide_by_reward_std,
}
BY_GROUP = ("group_std", "trl_group")  # divide by the deviation of each group's own rewards
WITHOUT_EPSILON = ("none", "informative")
DEVIATION = "deviation"  # of methods whose baseline has one of its own


@cache
def make_scaling(scale: str) -> Scaling:
    """The scaling with that name, or with a name and epsilon such as ``"group_std(epsilon=1e-4)"``.

    A ValueError if the name is unknown, the scaling has no epsilon, or epsilon is not positive.
    """
    parts = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*epsilon\s*=\s*([^()=,\s]+)\s*\))?\s*", scale)
    if parts is None or parts[1] not in SCALINGS:
        raise ValueError(
            f"scale: unknown {scale!r}; choose one of {', '.join(SCALINGS)} (those that divide take an epsilon, as in "
            "group_std(epsilon=1e-4)), or None for the method's own."
        )
    if parts[2] is None:
        return SCALINGS[parts[1]]
    if parts[1] in WITHOUT_EPSILON:
        raise ValueError(f"scale: {parts[1]!r} adds no epsilon to what it divides by; leave it out of {scale!r}.")
    try:
        epsilon = float(parts[2])
    except ValueError:
        raise ValueError(f"scale: epsilon must be a number, got {parts[2]!r} in {scale!r}.") from None
    return partial(SCALINGS[parts[1]], epsilon=check_positive("scale: epsilon", epsilon))


def recentres(scale: str) -> bool:
    """Whether a scaling removes a constant that was subtracted from all rewards of a step."""
    return scale.strip().startswith("batch_std")


def check_scale(scale: str, method: str, baseline: Baseline) -> None:
    """Raise a ValueError for an unknown scale, or for one that makes the advantages of a method explode."""
    make_scaling(str(scale))
    if scale.strip().startswith(BY_GROUP) and not baseline.within_group:
        raise ValueError(
            f"scale: {scale!r} divides by the deviation of a group's rewards, which suits only values from that "
            f"group alone, and method {method!r} has others: advantages would explode where the deviation is near 0. "
            "Take 'batch_std' or 'none'."
        )


def cancels_weights(baseline: Baseline, scale: str) -> bool:
    """Whether a method's weights of completions leave all advantages unchanged.

    One mean over the step, whatever its weights, is a constant. A scaling that re-centres the step removes it.
    """
    return baseline.one_mean and recentres(scale)


def check_weights_matter(given: str, method: str, baseline: Baseline, scale: str) -> None:
    """Raise a ValueError for weights, under the given name, that a method does not take or that change no advantage."""
    if not baseline.takes_weights:
        raise ValueError(
            f"{given}: method {method!r} does not average rewards, so it takes none; take one that does, such as "
            f"{DEFAULT_METHOD!r}, or leave it out."
        )
    if cancels_weights(baseline, scale):
        raise ValueError(
            f"{given}: method {method!r} subtracts one mean from all completions of the step, and scale {scale!r} "
            f"re-centres them, so the advantages are the same without {given}; set scale='none', or leave it out."
        )
