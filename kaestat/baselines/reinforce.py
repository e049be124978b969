"""REINFORCE: no baseline."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kaestat.baselines.base import WithoutVisits
from kaestat.core.arrays import Array, Groups, Visits


@dataclass(frozen=True)
class Zero(WithoutVisits):
    """The value 0 for everything (Williams, 1992)."""

    takes_weights: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        return groups.xp.zeros_like(groups.reward)
