"""GRPO, Dr. GRPO, GPG and RLOO: the mean reward of the completion's own group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kaestat.baselines.base import Baseline, WithoutVisits
from kaestat.core.arrays import Array, Groups, Visits, ratio


@dataclass(frozen=True)
class GroupMean(WithoutVisits):
    """Mean reward of the group (GRPO: Shao et al., 2024; RLOO: Kool et al., 2019).

    A single completion has value ``Z`` (advantage 0) with its own reward kept in. Without it, it has value 0, so the
    advantage is the raw reward (REINFORCE). Frameworks differ here: verl gives the raw reward in both cases.

    Parameters
    ----------
    without_own : bool
        Leave the completion's own reward out. GRPO, Dr. GRPO and GPG keep it in.
    """

    without_own: bool = False

    unit: ClassVar[Literal["prompt", "group"]] = "group"
    takes_weights: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True
    within_group: ClassVar[bool] = True

    @property
    def alone(self) -> str:
        return "its reward, without a baseline" if self.without_own else "0"

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp = groups.xp
        if self.without_own:
            mass, carried = groups.others()
        else:
            mass, carried = (xp.sum(column, axis=-1, keepdims=True) for column in (groups.mass, groups.carried))
        mean = ratio(carried, mass, 0.0, xp)
        return mean if mean.shape == groups.reward.shape else mean + xp.zeros_like(groups.reward)

    def own_derivative(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array | float:
        if self.without_own:
            return 0.0
        return ratio(groups.own_mass, groups.xp.sum(groups.mass, axis=-1, keepdims=True), 0.0, groups.xp)

    def leave_one_out(self) -> Baseline:
        return GroupMean(without_own=True)
