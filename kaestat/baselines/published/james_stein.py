"""James-Stein shrinkage of the leave-one-out group mean towards the other prompts' mean (Zeng et al., 2025)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from kaestat.baselines.base import WithoutVisits
from kaestat.core.arrays import Array, Groups, Visits, ratio

EPS = 1e-6  # as in the authors' code


@dataclass(frozen=True)
class JamesStein(WithoutVisits):
    """``(1 - lambda) LOO + lambda * mean of the other prompts``, with lambda estimated from the other prompts.

    Over the other prompts k of the step, ``v`` is the mean of ``var_unbiased(r_k) / m_k``, ``s`` the population
    variance of the group means, and ``lambda = v / (v + s + 1e-6)``. Neither lambda nor the target depends on the
    prompt itself, so the gradient stays unbiased.

    Groups of one completion drop out of ``v``. With no other prompt, lambda is 0; for a lone completion it is 1.

    Parameters
    ----------
    paper_factor : bool
        Multiply lambda by (n - 1) / n for n other prompts, as in the paper; the authors' code does not.
    """

    paper_factor: bool = False

    unit: ClassVar[Literal["prompt", "group"]] = "group"
    takes_weights: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

    @property
    def pools_prompts(self) -> bool:
        return True

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp, (others_mass, others_carried) = groups.xp, groups.others()
        mean, filled, _, _ = _moments(groups)
        target = ratio(groups.pooled_others(mean), groups.pooled_others(filled), 0.0, xp)
        shrinkage = self.shrinkage(groups)
        own = ratio(others_carried, others_mass, target, xp)
        return (1 - shrinkage) * own + shrinkage * target + xp.zeros_like(groups.reward)

    def shrinkage(self, groups: Groups) -> Array:
        """The shrinkage weight lambda of each prompt, shape (..., P, 1)."""
        xp, present = groups.xp, groups.present
        # Squares of rewards that lie far from 0 would lose the digits in which they differ, and huge ones overflow.
        count = xp.sum(present, axis=(-2, -1), keepdims=True)
        center = ratio(xp.sum(present * groups.reward, axis=(-2, -1), keepdims=True), count, 0.0, xp)
        away = xp.where(present > 0, groups.reward - center, xp.zeros_like(groups.reward))
        largest = xp.max(xp.abs(away), axis=(-2, -1), keepdims=True)
        scale = xp.where(largest > 0, largest, xp.ones_like(largest))
        mean, filled, noise, noisy = _moments(replace(groups, reward=away / scale))
        n = groups.pooled_others(filled)
        middle = ratio(groups.pooled_others(mean), n, 0.0, xp)
        spread = xp.clip(ratio(groups.pooled_others(mean**2), n, 0.0, xp) - middle**2, 0.0, None)
        v = ratio(groups.pooled_others(noise * noisy), groups.pooled_others(noisy), 0.0, xp)
        shrinkage = ratio(v, v + spread + EPS / scale / scale, 0.0, xp)
        return shrinkage * ratio(n - 1, n, 0.0, xp) if self.paper_factor else shrinkage


def _moments(groups: Groups) -> tuple[Array, Array, Array, Array]:
    """Of each prompt: group mean (0 without mass), whether it has one, that mean's variance, whether it has that."""
    xp = groups.xp
    mass, carried = (xp.sum(column, axis=-1, keepdims=True) for column in (groups.mass, groups.carried))
    mean = ratio(carried, mass, 0.0, xp)
    squares = xp.sum(groups.mass * (groups.reward - mean) ** 2, axis=-1, keepdims=True)
    # With unit weights this is sum (r - mean)^2 / (m - 1) / m; with weights the effective size takes m's place.
    effective = ratio(mass**2, xp.sum(groups.mass_sq, axis=-1, keepdims=True), 0.0, xp)
    noise = ratio(ratio(squares, mass, 0.0, xp), effective - 1, 0.0, xp)
    return mean, xp.astype(mass > 0, mean.dtype), noise, xp.astype(effective > 1 + 1e-9, mean.dtype)
