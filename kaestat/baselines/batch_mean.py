"""One value for all: the mean reward of the step (REINFORCE++), or 0 (REINFORCE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kaestat.baselines.base import OwnRewardOptional, WithoutVisits
from kaestat.core.arrays import Array, Groups, Visits, ratio


@dataclass(frozen=True)
class BatchMean(OwnRewardOptional):
    """Mean reward over every completion of the step (Hu et al., 2025; paper, section 3, second approach).

    With weights it is the score-weighted batch baseline ``sum W Z / sum W``. Whitening would cancel this constant
    again (`kaestat.estimator.scaling.cancels_weights`).

    Parameters
    ----------
    without_own : bool
        Leave the completion's own reward out, as in the paper's Table 1. The published method keeps it in.
        A lone completion then has value 0.
    """

    takes_weights: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

    @property
    def pools_prompts(self) -> bool:
        return True

    @property
    def alone(self) -> str:
        return ""

    @property
    def one_mean(self) -> bool:
        return not self.without_own

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp = groups.xp
        mass, carried = self._of_step(groups)
        if self.without_own:
            mass, carried = mass - groups.own_mass, carried - groups.own_mass * groups.reward
        return ratio(carried, mass, 0.0, xp) + xp.zeros_like(groups.reward)

    def own_derivative(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array | float:
        if self.without_own:
            return 0.0
        return ratio(groups.own_mass, self._of_step(groups)[0], 0.0, groups.xp)

    def _of_step(self, groups: Groups) -> tuple[Array, Array]:
        """Mass and carried reward of all prompts; both (..., 1, 1)."""
        sums = (groups.xp.sum(a, axis=-1, keepdims=True) for a in (groups.mass, groups.carried))
        mass, carried = map(groups.pooled, sums)
        return mass, carried


@dataclass(frozen=True)
class Zero(WithoutVisits):
    """The value 0 for everything (Williams, 1992)."""

    takes_weights: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        return groups.xp.zeros_like(groups.reward)
