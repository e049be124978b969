"""Means of the completion's own group (GRPO, Dr. GRPO, GPG, RLOO), or of all groups of its prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kaestat.baselines.base import OwnRewardOptional, WithoutVisits
from kaestat.core.arrays import Array, Groups, Visits, ratio


@dataclass(frozen=True)
class GroupMean(OwnRewardOptional):
    """Mean reward of the group (GRPO: Shao et al., 2024; RLOO: Kool et al., 2019).

    A single completion has value ``Z`` (advantage 0) with its own reward kept in. Without it, it has value 0, so the
    advantage is the raw reward (REINFORCE). Frameworks differ here: verl gives the raw reward in both cases.

    Parameters
    ----------
    without_own : bool
        Leave the completion's own reward out. GRPO, Dr. GRPO and GPG keep it in.
    """

    unit: ClassVar[Literal["prompt", "group"]] = "group"
    takes_weights: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True
    within_group: ClassVar[bool] = True

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


@dataclass(frozen=True)
class Pooled(WithoutVisits):
    """Leave-one-out mean over all groups of the prompt (paper, appendix on the one-shot experiment).

    It differs from RLOO only if a prompt has several groups in one step: its rows are prompts, those of RLOO groups.
    A prompt with a single completion has value 0.
    """

    takes_weights: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True
    within_group: ClassVar[bool] = True

    @property
    def alone(self) -> str:
        return "its reward, without a baseline"

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        mass, carried = groups.others()
        return ratio(carried, mass, 0.0, groups.xp) + groups.xp.zeros_like(groups.reward)
