"""A bandwidth that is already chosen."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from kaestat.core.arrays import Array, Visits
from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.base import FormulaSelector


@dataclass(frozen=True, eq=False)
class Settled(FormulaSelector):
    """The result of another selector at one step, as of `Selector.resolve`, so that it need not choose twice."""

    resolved: tuple[tuple[Array | float, Array | float], ...]
    name: ClassVar[str] = "settled"

    @cached_property
    def memory(self) -> float:
        return max(float(np.max(bandwidth)) for bandwidth, _ in self.resolved)

    def resolve(
        self, visits: Visits, current_count: Array, *, step: int | Array, kernel: Kernel
    ) -> list[tuple[Array | float, Array | float]]:
        return list(self.resolved)
