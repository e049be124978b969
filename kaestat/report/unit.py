"""The unit for a log's risks, chosen by their size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

SMALLEST_SHOWN = 0.5  # of the middle risk, in its unit
ROUNDING = 1e-12  # of the largest risk
NAMES = {0: "1", -3: "0.001", 3: "1,000"}


def number(value: float, form: str) -> str:
    """A number as text; a dash if it is NaN."""
    return "-" if math.isnan(value) else format(value, form)


@dataclass(frozen=True)
class Unit:
    """A power of a thousand."""

    power: int = -3  # Of ten

    @classmethod
    def of(cls, risks: Iterable[float]) -> Unit:
        """The unit in which the median of some risks (in size) is between 0.5 and 500; rounding errors do not count."""
        sizes = np.abs(np.asarray(list(risks), dtype=float))
        sizes = sizes[np.isfinite(sizes)]
        sizes = sizes[sizes > ROUNDING * sizes.max(initial=0.0)]
        if len(sizes) == 0:
            return cls()
        return cls(3 * math.floor(math.log10(float(np.median(sizes)) / SMALLEST_SHOWN) / 3))

    @property
    def name(self) -> str:
        """The name of the unit, such as ``0.001``."""
        return NAMES.get(self.power, f"1e{self.power}")

    @property
    def times(self) -> str:
        """The suffix for numbers in this unit; empty if it is one."""
        return "" if self.power == 0 else f" × {self.name}"

    def value(self, risk: float) -> float:
        """A risk in this unit, with two decimals; a rounded zero has no sign."""
        return round(risk / 10.0**self.power, 2) + 0.0

    def number(self, risk: float) -> str:
        """A risk as text."""
        return "-" if math.isnan(risk) else f"{self.value(risk):.2f}"

    def signed(self, difference: float) -> str:
        """A difference of risks as text."""
        return "-" if math.isnan(difference) else f"{self.value(difference):+.2f}"

    def interval(self, low: float, high: float) -> str:
        """An interval of risks as text."""
        return "-" if math.isnan(low) else f"{self.number(low)} to {self.number(high)}"
