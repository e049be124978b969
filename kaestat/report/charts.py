"""Interactive figures: their numbers in the form that the page's script (uPlot) reads."""

from __future__ import annotations

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
    """A line of a chart.

    Attributes
    ----------
    label : str
    y : ndarray or sequence of float
        NaN where there is no value.
    low, high : ndarray or sequence of float, optional
        Ends of an interval, drawn as a band.
    dash : tuple of int
        Lengths of dashes and gaps; empty for a solid line.
    """

    label: str
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    dash: tuple[int, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The line as plain data."""
        made: dict[str, Any] = {"label": self.label, "y": _numbers(self.y), "dash": list(self.dash)}
        if self.low is not None and self.high is not None:
            made |= {"low": _numbers(self.low), "high": _numbers(self.high)}
        return made


@dataclass(frozen=True)
class Chart:
    """Lines over a common axis.

    Attributes
    ----------
    title : str
    x_label, y_label : str
    x : ndarray or sequence of float
        Ascending.
    lines : sequence of Line
    x_log, y_log : bool
        Whether the axis is logarithmic.
    y_range : tuple of float, optional
        Ends of the axis; None goes by the values.
    """

    title: str
    x_label: str
    y_label: str
    x: Numbers
    lines: Sequence[Line]
    x_log: bool = False
    y_log: bool = False
    y_range: tuple[float, float] | None = None

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
