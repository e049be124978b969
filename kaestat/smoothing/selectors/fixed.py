"""A fixed bandwidth in steps."""

from dataclasses import dataclass
from typing import ClassVar

from kaestat.core.arrays import Array, Visits
from kaestat.core.checks import check_positive
from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.base import FormulaSelector


@dataclass(frozen=True)
class Fixed(FormulaSelector):
    """The same number of steps throughout (the paper's experiments use about 10).

    Parameters
    ----------
    steps : float
        Bandwidth in steps; ``inf`` gives the running mean.
    """

    steps: float = 10.0
    name: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", check_positive("bandwidth", self.steps, allow_inf=True))

    @property
    def memory(self) -> float:
        return self.steps

    def resolve(
        self, visits: Visits, current_count: Array, *, step: int | Array, kernel: Kernel
    ) -> list[tuple[Array | float, Array | float]]:
        return [(self.steps, 1.0)]
