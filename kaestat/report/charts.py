"""Interactive figures: their numbers in the form that the page's script (uPlot) reads."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

DIGITS = 5
Numbers: TypeAlias = np.ndarray | Sequence[float]


@dataclass(frozen=True)
class Line:
    """A line of a chart."""

    label: str
    y: Numbers  # NaN where there is no value
    low: Numbers | None = None  # Ends of an interval, drawn as a band
    high: Numbers | None = None
    dash: tuple[int, ...] = ()  # Lengths of dashes and gaps; empty for a solid line

    def plain(self) -> dict[str, Any]:
        """The line as plain data."""
        made: dict[str, Any] = {"label": self.label, "y": _numbers(self.y), "dash": list(self.dash)}
        if self.low is not None and self.high is not None:
            made |= {"low": _numbers(self.low), "high": _numbers(self.high)}
        return made


@dataclass(frozen=True)
class Chart:
    """Lines over a common axis."""

    title: str
    x_label: str
    y_label: str
    x: Numbers  # Ascending
    lines: Sequence[Line]
    x_log: bool = False  # Whether the axis is logarithmic
    y_log: bool = False
    y_range: tuple[float, float] | None = None  # Ends of the axis; None goes by the values

    @property
    def json(self) -> str:
        """The JSON text that ``charts.js`` reads."""
        return json.dumps(
            {
                "xLabel": self.x_label,
                "yLabel": self.y_label,
                "x": _numbers(self.x),
                "xLog": self.x_log,
                "yLog": self.y_log,
                "yRange": self.y_range,
                "lines": [line.plain() for line in self.lines],
            },
            separators=(",", ":"),
        )


def _numbers(values: Numbers) -> list[float | None]:
    return [
        float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
        for value in np.asarray(values, dtype=float).tolist()
    ]
