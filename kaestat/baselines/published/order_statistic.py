"""Baselines that are an order statistic of the group's rewards: a median, a quantile, the best of the others."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from array_api_compat import device

from kaestat.baselines.base import OwnRewardOptional
from kaestat.core.arrays import Array, Groups, Visits, namespace, ratio


@dataclass(frozen=True)
class OrderStatistic(OwnRewardOptional):
    """Base class of the baselines that use an order statistic of the group's rewards instead of the mean.

    Given the other completions, such a value is the completion's own reward clipped to `bounds`. A log cannot
    correct for this without bias, so `kaestat.value_risk` scores `leave_one_out`, as for GRPO.

    Parameters
    ----------
    without_own : bool
        Take the completion's own reward out of the group first. A lone completion then has value 0.
    """

    unit: ClassVar[Literal["prompt", "group"]] = "group"
    estimates_mean: ClassVar[bool] = False
    within_group: ClassVar[bool] = True

    @abstractmethod
    def rank(self, count: Array) -> Array:
        """The rank of the reward among ``count`` rewards, 0 for the lowest."""

    def bounds(self, groups: Groups) -> tuple[Array, Array]:
        """The rewards between which the own reward moves the value, (..., P, G) each; infinite if there is no bound."""
        xp = groups.xp
        rank = self.rank(groups.count)
        ordered = in_order(groups)
        below, here, above = (at_rank(ordered, rank + shift) for shift in (-1, 0, 1))
        none = xp.zeros_like(groups.reward)
        # A completion below that rank, taken out, leaves its successor there; one above it, its predecessor.
        return xp.where(groups.reward < here, here, below + none), xp.where(groups.reward > here, here, above + none)

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp = groups.xp
        if self.without_own:
            found = self.of_others(groups)
        else:
            lower, upper = self.bounds(groups)
            found = xp.minimum(xp.maximum(groups.reward, lower), upper)
        return xp.where(groups.present > 0, found, xp.zeros_like(found))

    def of_others(self, groups: Groups) -> Array:
        """The reward of that rank among the others, (..., P, G); 0 for a lone completion."""
        xp = groups.xp
        others = groups.count - 1
        rank, ordered = self.rank(others), in_order(groups)
        here, above = at_rank(ordered, rank), at_rank(ordered, rank + 1)
        found = xp.where(groups.reward <= here, above, here)
        return xp.where(others > 0, found, xp.zeros_like(found))

    def own_derivative(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array | float:
        """Slope between the group's lowest and highest reward; if all are equal, the mean of those on both sides."""
        if self.without_own:
            return 0.0
        xp = groups.xp
        lower, upper = self.bounds(groups)
        ordered = in_order(groups)
        least, most = at_rank(ordered, 0.0 * groups.count), at_rank(ordered, groups.count - 1)
        present, none = groups.present > 0, xp.zeros_like(groups.reward)
        rise = xp.where(present, xp.minimum(most, upper) - xp.maximum(least, lower), none)
        free = xp.astype(lower < groups.reward, none.dtype) + xp.astype(upper > groups.reward, none.dtype)
        return ratio(rise, xp.where(present, most - least, none), xp.where(present, free / 2, none), xp)


def in_order(groups: Groups) -> Array:
    """Rewards of each group, sorted, with an infinity before and after, (..., P, G + 2); padding comes last."""
    xp = groups.xp
    if groups.mask is None:
        rewards = groups.reward
    else:
        rewards = xp.where(groups.mask, groups.reward, xp.full_like(groups.reward, xp.inf))
    end = xp.full_like(rewards[..., :1], xp.inf)
    return xp.concat([-end, xp.sort(rewards, axis=-1), end], axis=-1)


def at_rank(ordered: Array, rank: Array) -> Array:
    """Entry ``rank`` (0-based, not counting the first infinity) of the result of `in_order`; both (..., P, 1)."""
    xp = namespace(ordered)
    places = xp.arange(-1, ordered.shape[-1] - 1, dtype=ordered.dtype, device=device(ordered))
    return xp.sum(xp.where(places == rank, ordered, xp.zeros_like(ordered)), axis=-1, keepdims=True)
