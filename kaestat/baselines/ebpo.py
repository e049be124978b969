"""EBPO: empirical-Bayes shrinkage of the group mean towards a running global mean (Han et al., 2026)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from kaestat.baselines.base import Served, WithoutVisits
from kaestat.core.arrays import Array, Groups, Namespace, Visits, ratio


@dataclass(frozen=True)
class Ebpo(WithoutVisits):
    """``b = (1 - S) * group mean + S * mu`` with ``S = (sigma^2 / G) / (sigma^2 / G + tau^2)``.

    ``mu`` and ``sigma^2`` are the running mean and (unbiased) variance of all rewards so far, ``tau^2`` the variance of
    all group means; both already include the current step. The value therefore contains the completion's own
    reward, also through S: the gradient is biased, and the risk on a log needs `own_derivative`.

    With fewer than two rewards or groups so far, the variances are 0; S is 0 if both are.
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
        xp = groups.xp
        carry = self.initial_carry() if carry is None else carry
        count = groups.count[..., 0]
        mean = ratio(xp.sum(groups.carried, axis=-1), count, 0.0, xp)
        present, seen = groups.present, xp.astype(count > 0, mean.dtype)
        flat = xp.reshape(groups.reward, (*groups.reward.shape[:-2], -1))
        return {
            "rewards": _welford(carry["rewards"], flat, xp.reshape(present, (*present.shape[:-2], -1)), xp),
            "group_means": _welford(carry["group_means"], mean, seen, xp),
        }

    def serve(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Served:
        of_step = _OfStep(self.advance(carry, groups, visits, step=step))
        return Served(of_step.values(groups, visits, step=step), of_step.seen, of_step)

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp = groups.xp
        seen = self.advance(carry, groups, visits, step=step)
        shrinkage = self._shrinkage(groups, seen)
        mean = ratio(xp.sum(groups.carried, axis=-1, keepdims=True), groups.count, 0.0, xp)
        mu = seen["rewards"][..., 1][..., None, None]
        value = (1 - shrinkage) * mean + shrinkage * mu + xp.zeros_like(groups.reward)
        return xp.astype(value, groups.reward.dtype)  # the moments of a whole run are doubles

    def own_derivative(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array | float:
        """Derivative of a completion's value in its own reward, shape (..., P, G).

        The own reward is in the group's mean, in mu, and through sigma^2 and tau^2 in S, so the value is not linear
        in it. For rewards 0 and 1 the covariance of reward and value is ``Var(Z) (b(1) - b(0))`` for any b. So the
        derivative is the difference quotient of the value between the reward and its mirror image in the range of the
        group: exact for two possible rewards, an approximation for more.
        """
        xp = groups.xp
        seen = self.advance(carry, groups, visits, step=step)
        count = groups.count
        mean = ratio(xp.sum(groups.carried, axis=-1, keepdims=True), count, 0.0, xp)
        there, reward = groups.present > 0, groups.reward
        far = xp.full_like(reward, np.inf)
        least = xp.min(xp.where(there, reward, far), axis=-1, keepdims=True)
        most = xp.max(xp.where(there, reward, -far), axis=-1, keepdims=True)
        least, most = (xp.where(count > 0, end, xp.zeros_like(end)) for end in (least, most))
        change = xp.where(there, least + most - 2 * reward, xp.zeros_like(reward))
        range_ = xp.where(most > least, most - least, xp.ones_like(most))
        # A reward in the middle of the range is its own image, and one of a group of equals too: any change will do.
        change = xp.where(there & (xp.abs(change) > 0.01 * range_), change, range_ + xp.zeros_like(reward))
        rewards, mu = _replaced(seen["rewards"], reward, change, xp)
        group_means, _ = _replaced(seen["group_means"], mean, ratio(change, count, 0.0, xp), xp)
        noise, between = ratio(rewards, count, 0.0, xp), group_means
        shrinkage = ratio(noise, noise + between, 0.0, xp)
        changed = (1 - shrinkage) * (mean + ratio(change, count, 0.0, xp)) + shrinkage * mu
        before = self._shrinkage(groups, seen)
        value = (1 - before) * mean + before * seen["rewards"][..., 1][..., None, None]
        return xp.where(there, (changed - value) / change, xp.zeros_like(changed))

    def _shrinkage(self, groups: Groups, seen: dict[str, Array]) -> Array:
        xp = groups.xp
        sigma2, tau2 = (_variance(seen[key], xp)[..., None, None] for key in ("rewards", "group_means"))
        noise = ratio(sigma2 + xp.zeros_like(groups.count), groups.count, 0.0, xp)
        return ratio(noise, noise + tau2, 0.0, xp)


@dataclass(frozen=True, eq=False)
class _OfStep(Ebpo):
    """The baseline at a step whose rewards its moments have seen, so that they need not be gone through again."""

    seen: dict[str, Array]

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> dict[str, Array]:
        return self.seen


def _welford(accumulator: Array, sample: Array, present: Array, xp: Namespace) -> Array:
    """Merge a batch (..., N) into the accumulator (..., 3): count, mean, sum of squared deviations (Chan et al.)."""
    accumulator = xp.asarray(accumulator) + xp.zeros_like(sample[..., :1])
    n, mean, m2 = (accumulator[..., k] for k in range(3))
    batch_n = xp.sum(present, axis=-1)
    batch_mean = ratio(xp.sum(present * sample, axis=-1), batch_n, 0.0, xp)
    batch_m2 = xp.sum(present * (sample - batch_mean[..., None]) ** 2, axis=-1)
    total = n + batch_n
    delta = batch_mean - mean
    return xp.stack(
        [
            total,
            mean + delta * ratio(batch_n, total, 0.0, xp),
            m2 + batch_m2 + delta**2 * ratio(n * batch_n, total, 0.0, xp),
        ],
        axis=-1,
    )


def _replaced(accumulator: Array, sample: Array, change: Array, xp: Namespace) -> tuple[Array, Array]:
    """Variance and mean if one of the samples seen were larger by ``change``; the shape of ``change``."""
    n, mean, m2 = (accumulator[..., k][..., None, None] for k in range(3))
    share = ratio(change, n + xp.zeros_like(change), 0.0, xp)
    squares = m2 + change * (2 * (sample - mean) + change - share)
    return ratio(xp.clip(squares, 0.0, None), n - 1 + xp.zeros_like(change), 0.0, xp), mean + share


def _variance(accumulator: Array, xp: Namespace) -> Array:
    return ratio(accumulator[..., 2], accumulator[..., 0] - 1, 0.0, xp)
