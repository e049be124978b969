"""The rate-optimal bandwidth of Corollary 1."""

from dataclasses import dataclass
from typing import ClassVar

from kaestat.core.arrays import Array, Visits, as_like, namespace
from kaestat.core.checks import check_positive
from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.base import FormulaSelector


@dataclass(frozen=True)
class Rate(FormulaSelector):
    """``h = c N^(-1/3)`` of the elapsed steps, that is ``i * c * N_i(x)^(-1/3)`` steps (paper, Corollary 1).

    ``N_i(x)`` is the prompt's sample size: all past completions, and the current ones without the one left out
    (Theorem 1). Every prompt has its own bandwidth.

    Parameters
    ----------
    c : float
        Constant of proportionality.
    """

    c: float = 1.0
    name: ClassVar[str] = "rate"

    def __post_init__(self) -> None:
        object.__setattr__(self, "c", check_positive("rate c", self.c))

    def resolve(
        self, visits: Visits, current_count: Array, *, step: int | Array, kernel: Kernel
    ) -> list[tuple[Array | float, Array | float]]:
        xp = namespace(visits.count)
        size = xp.sum(visits.count, axis=-1, keepdims=True) + xp.clip(current_count - 1, 0.0, None)
        elapsed = xp.clip(as_like(step, visits.lag), 1.0, None)
        return [(elapsed * (self.c * xp.clip(size, 1.0, None) ** (-1 / 3)), 1.0)]
