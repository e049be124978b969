"""EBPO: empirical-Bayes shrinkage of the group mean towards a running global mean (Han et al., 2026)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from kaestat.baselines.base import WithoutVisits
from kaestat.core.arrays import Array, Groups, Namespace, Visits, not_negative, ratio


@dataclass(frozen=True)
class Ebpo(WithoutVisits):
    """``b = (1 - S) * group mean + S * mu`` with ``S = (sigma^2 / G) / (sigma^2 / G + tau^2)``.

    ``mu`` and ``sigma^2`` are the running mean and (unbiased) variance of all rewards so far, ``tau^2`` the variance of
    all group means; both already include the current step. The value therefore contains the completion's own
    reward, also through S: the gradient is biased, and the risk on a log needs `own_derivative`.
    """

    unit: ClassVar[Literal["prompt", "group"]] = "group"
    stepwise: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

    @property
    def pools_prompts(self) -> bool:
        return True

    def initial_carry(self) -> dict[str, np.ndarray]:
        """Count, mean and sum of squared deviations (Welford) of rewards and of group means."""
        return {"rewards": np.zeros(3), "group_means": np.zeros(3)}

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> dict[str, Array]:
        xp, carry, count = groups.xp, carry or self.initial_carry(), groups.count[..., 0]
        mean = ratio(xp.sum(groups.carried, axis=-1), count, 0.0, xp)
        reward, present = (xp.reshape(a, (*a.shape[:-2], -1)) for a in (groups.reward, groups.present))
        return {
            "rewards": _merged(carry["rewards"], reward, present, xp),
            "group_means": _merged(carry["group_means"], mean, xp.astype(count > 0, mean.dtype), xp),
        }

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        seen = self.advance(carry, groups, visits, step=step)
        value = _value(groups, seen, groups.xp.zeros_like(groups.reward))
        return groups.xp.astype(value, groups.reward.dtype)  # the moments of a whole run are doubles

    def own_derivative(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array | float:
        """Difference quotient of the value between the reward and its mirror image in the range of the group.

        It is exact for two possible rewards, for which ``Cov(Z, b) = Var(Z) (b(1) - b(0))``, and else an approximation.
        """
        xp, there, reward = groups.xp, groups.present > 0, groups.reward
        far = xp.full_like(reward, np.inf)
        least = xp.min(xp.where(there, reward, far), axis=-1, keepdims=True)
        most = xp.max(xp.where(there, reward, -far), axis=-1, keepdims=True)
        least, most = (xp.where(groups.count > 0, end, xp.zeros_like(end)) for end in (least, most))
        width = xp.where(most > least, most - least, xp.ones_like(most))
        change = xp.where(there, least + most - 2 * reward, xp.zeros_like(reward))
        # A reward in the middle of the range is its own image, and one of a group of equals too: any change will do.
        change = xp.where(xp.abs(change) > 0.01 * width, change, width + xp.zeros_like(reward))
        seen = self.advance(carry, groups, visits, step=step)
        quotient = (_value(groups, seen, change) - _value(groups, seen, xp.zeros_like(change))) / change
        return xp.where(there, quotient, xp.zeros_like(quotient))


def _value(groups: Groups, seen: dict[str, Array], change: Array) -> Array:
    """The value of each completion if its own reward were larger by ``change``; (..., P, G)."""
    xp, count = groups.xp, groups.count
    mean, moved = ratio(xp.sum(groups.carried, axis=-1, keepdims=True), count, 0.0, xp), ratio(change, count, 0.0, xp)
    sigma2, mu = _replaced(seen["rewards"], groups.reward, change, xp)
    tau2, _ = _replaced(seen["group_means"], mean, moved, xp)
    noise = ratio(sigma2, count, 0.0, xp)
    shrinkage = ratio(noise, noise + tau2, 0.0, xp)
    return (1 - shrinkage) * (mean + moved) + shrinkage * mu


def _merged(before: Array, sample: Array, present: Array, xp: Namespace) -> Array:
    """Merge samples (..., N) into count, mean and sum of squared deviations, (..., 3) (Chan et al.)."""
    before = xp.asarray(before) + xp.zeros_like(sample[..., :1])
    n, mean, squares = (before[..., k] for k in range(3))
    new = xp.sum(present, axis=-1)
    new_mean = ratio(xp.sum(present * sample, axis=-1), new, 0.0, xp)
    new_squares = xp.sum(present * (sample - new_mean[..., None]) ** 2, axis=-1)
    share, away = ratio(new, n + new, 0.0, xp), new_mean - mean
    return xp.stack([n + new, mean + away * share, squares + new_squares + away**2 * n * share], axis=-1)


def _replaced(moments: Array, sample: Array, change: Array, xp: Namespace) -> tuple[Array, Array]:
    """Variance and mean if one of the samples were larger by ``change``; the shape of ``change``."""
    n, mean, squares = (moments[..., k][..., None, None] + xp.zeros_like(change) for k in range(3))
    share = ratio(change, n, 0.0, xp)
    squares = not_negative(squares + change * (2 * (sample - mean) + change - share))
    return ratio(squares, n - 1, 0.0, xp), mean + share
