"""The one-shot oracle of the paper: leave-one-out mean over all completions of the same prompt at this step."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kaestat.baselines.base import WithoutVisits
from kaestat.core.arrays import Array, Groups, Visits, ratio


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
