"""The unit for a log's risks, chosen by their size, and numbers as text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

SMALLEST_SHOWN = 0.5  # of the middle risk, in its unit
ROUNDING = 1e-12  # of the largest risk
NAMES = {0: "1", -3: "0.001", 3: "1,000"}
Estimate = tuple[float, float, float]  # a number, and the ends of its 95 % interval
UNKNOWN: Estimate = (math.nan, math.nan, math.nan)


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

    def number(self, value: float, form: str = ".2f") -> str:
        """A number in this unit as text, a rounded zero without its sign; a dash if it is not finite."""
        if not math.isfinite(value):
            return "-"
        digits = int(form[-2])
        return format(round(value / 10.0**self.power, digits) + 0.0, form)

    def interval(self, low: float, high: float, form: str = ".2f") -> str:
        """An interval as text; a dash where there is none."""
        return "-" if math.isnan(low) else f"{self.number(low, form)} to {self.number(high, form)}"


PLAIN = Unit(0)
