"""A bandwidth that is a fraction of the elapsed steps, as in Algorithm 1."""

from dataclasses import dataclass
from typing import ClassVar

from kaestat.core.arrays import Array, Visits, as_like
from kaestat.core.checks import check_positive
from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.base import FormulaSelector


@dataclass(frozen=True)
class Fraction(FormulaSelector):
    """``i * h`` steps at step i: the paper's Algorithm 1, which writes ``K((i - I_j) / (i h))``.

    At step 0 there is no past, and the bandwidth is h.

    Parameters
    ----------
    h : float
        Fraction of the elapsed steps; the theory requires h < 1.
    """

    h: float = 0.1
    name: ClassVar[str] = "fraction"

    def __post_init__(self) -> None:
        object.__setattr__(self, "h", check_positive("fraction h", self.h))

    def resolve(
        self, visits: Visits, current_count: Array, *, step: int | Array, kernel: Kernel
    ) -> list[tuple[Array | float, Array | float]]:
        if isinstance(step, int | float):
            return [(max(step, 1) * self.h, 1.0)]
        step = as_like(step, visits.lag)
        return [(((step > 0) * step + (step <= 0)) * self.h, 1.0)]
