"""James-Stein shrinkage of the leave-one-out group mean towards the other prompts' mean (Zeng et al., 2025)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from kaestat.baselines.base import WithoutVisits
from kaestat.core.arrays import Array, Groups, Visits, finite_squares, ratio
from kaestat.core.checks import check_positive


@dataclass(frozen=True)
class JamesStein(WithoutVisits):
    """``(1 - lambda) LOO + lambda * mean of the other prompts``, with lambda estimated from the other prompts.

    Over the other prompts k of the step, ``v`` is the mean of ``var_unbiased(r_k) / m_k``, ``s`` the population
    variance of the group means, and ``lambda = v / (v + s + eps)``. Neither lambda nor the target depends on the prompt
    itself, so the gradient stays unbiased.

    Groups of one completion have no variance and drop out of ``v``. With no other prompt, lambda is 0; with no
    completion left in the prompt's own group, lambda is 1.

    Parameters
    ----------
    paper_factor : bool
        Multiply lambda by (n - 1) / n for n other prompts, as in the paper; the authors' code does not.
    eps : float
        Added to the denominator.
    """

    paper_factor: bool = False
    eps: float = 1e-6

    unit: ClassVar[Literal["prompt", "group"]] = "group"
    takes_weights: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive("eps", self.eps, allow_zero=True)

    @property
    def pools_prompts(self) -> bool:
        return True

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp = groups.xp
        others_mass, others_carried = groups.others()
        target = self._mean_of_others(groups)
        shrinkage = self.shrinkage(groups)
        own = ratio(others_carried, others_mass, target, xp)
        return (1 - shrinkage) * own + shrinkage * target + xp.zeros_like(groups.reward)

    def shrinkage(self, groups: Groups) -> Array:
        """The shrinkage weight lambda of each prompt, shape (..., P, 1)."""
        xp = groups.xp
        deviations, unit = _centred(groups)
        mean, filled, noise, noisy = self._moments(deviations)
        n = groups.pooled_others(filled)
        center = ratio(groups.pooled_others(mean), n, 0.0, xp)
        spread = xp.clip(ratio(groups.pooled_others(mean**2), n, 0.0, xp) - center**2, 0.0, None)
        v = ratio(groups.pooled_others(noise * noisy), groups.pooled_others(noisy), 0.0, xp)
        shrinkage = ratio(v, v + spread + self.eps / unit / unit, 0.0, xp)
        return shrinkage * ratio(n - 1, n, 0.0, xp) if self.paper_factor else shrinkage

    def _mean_of_others(self, groups: Groups) -> Array:
        xp = groups.xp
        mean, filled, _, _ = self._moments(groups)
        return ratio(groups.pooled_others(mean), groups.pooled_others(filled), 0.0, xp)

    def _moments(self, groups: Groups) -> tuple[Array, Array, Array, Array]:
        """Per prompt: group mean (0 without mass), whether it has one, variance of that mean, and whether it has that.

        All (..., P, 1).
        """
        xp = groups.xp
        mass = xp.sum(groups.mass, axis=-1, keepdims=True)
        mean = ratio(xp.sum(groups.carried, axis=-1, keepdims=True), mass, 0.0, xp)
        squares = xp.sum(groups.mass * (groups.reward - mean) ** 2, axis=-1, keepdims=True)
        mass_sq = xp.sum(groups.mass_sq, axis=-1, keepdims=True)
        # With unit weights this is sum (r - mean)^2 / (m - 1) / m; with weights the effective size takes m's place.
        effective = ratio(mass**2, mass_sq, 0.0, xp)
        noise = ratio(ratio(squares, mass, 0.0, xp), effective - 1, 0.0, xp)
        return mean, xp.astype(mass > 0, mean.dtype), noise, xp.astype(effective > 1 + 1e-9, mean.dtype)


def _centred(groups: Groups) -> tuple[Groups, Array | float]:
    """The groups with rewards less their mean, in a unit, and the unit; shrinkage is that of the rewards but for eps.

    Squares of rewards that lie far from 0 would lose the digits in which they differ, and those of huge ones overflow.
    """
    xp, both = groups.xp, (-2, -1)
    present = groups.present
    n = xp.sum(present, axis=both, keepdims=True)
    mean = ratio(xp.sum(present * groups.reward, axis=both, keepdims=True), n, 0.0, xp)
    deviations = xp.where(present > 0, groups.reward - mean, xp.zeros_like(groups.reward))
    with np.errstate(over="ignore", invalid="ignore"):
        squares = xp.sum(present * deviations**2, axis=both, keepdims=True)
    _, unit = finite_squares(squares, lambda: deviations, both, xp)
    return replace(groups, reward=deviations / unit), unit
