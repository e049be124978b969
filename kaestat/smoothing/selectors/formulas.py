"""Bandwidths that need no rewards: a fixed one, two formulas of the paper, and one that is already chosen."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from kaestat.core.arrays import Array, Visits, as_like, namespace
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
