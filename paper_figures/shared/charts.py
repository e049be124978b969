"""What the figures share: labels, colours, axes with plain numbers, and error bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from kaestat.core.bootstrap import NORMAL_975
from kaestat.report.plots import STYLE, plain_ticks
from paper_figures.shared import paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Okabe and Ito's palette, told apart with any colour vision; markers differ too.
BLUE, SKY, VERMILION, GREEN, ORANGE, PURPLE = "#0072B2", "#56B4E9", "#D55E00", "#009E73", "#E69F00", "#CC79A7"
GREY, BLACK = "#4D4D4D", "#000000"

LABELS = paper.LABELS | {
    "none": "No baseline",
    "oracle": "Oracle (true value)",
    "best_baseline": "Best baseline",
    "kae-algorithm1": "KAE, Algorithm 1",
    "kae_eb": "KAE-EB",
    "kae_stream": "KAE by stream",
    "kae:bandwidth=80": "KAE, bandwidth 80",
    "kae_eb:bandwidth=80": "KAE-EB, bandwidth 80",
    "kae:bandwidth=10": "KAE, bandwidth 10",
    "kae_eb:bandwidth=20": "KAE-EB, bandwidth 20",
    "rloo": "GRPO",
    "pooled": "Oracle (pooled step)",
    "pooled_oracle": "Oracle (pooled step)",
    "bayes_filter": "Bayes filter (learned)",
    "james_stein": "James-Stein",
    "ebpo": "EBPO",
    "krpo": "KRPO",
    "kalman": "Kalman filter",
    "spo": "SPO",
    "outside_value": "KAE with an outside value",
    "local_linear": "Local linear",
    "local_polynomial": "Local polynomial",
    "sieve": "Sieve",
}


@dataclass(frozen=True)
class Mark:
    """How a series is drawn.

    color, marker: As in Matplotlib.
    """

    color: str
    marker: str
    filled: bool = True

    @property
    def style(self) -> dict[str, object]:
        """Arguments of Matplotlib's ``plot`` and ``errorbar``."""
        face = self.color if self.filled else "white"
        return {"color": self.color, "marker": self.marker, "markerfacecolor": face, "markersize": 5}


MARKS = {
    "kae": Mark(BLUE, "o"),
    "kae-algorithm1": Mark(SKY, "D", filled=False),
    "kae_eb": Mark(GREEN, "D"),
    "grpo": Mark(VERMILION, "s"),
    "reinforce++": Mark(GREY, "^"),
    "none": Mark(PURPLE, "v"),
    "oracle": Mark(BLACK, "x"),
}


@contextmanager
def styled(width: float, height: float) -> Iterator[Figure]:
    """An empty figure of that size in inches, and the style of all figures while it is drawn."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def error_bars(axes: Axes, x: Sequence[float], y: pd.Series, mcse: pd.Series, mark: Mark, **style: object) -> None:
    """Points with 95 % Monte Carlo intervals."""
    axes.errorbar(x, y, yerr=NORMAL_975 * mcse, capsize=2, elinewidth=1, **({"linestyle": ""} | mark.style | style))


def key(mark: Mark, label: str, **style: object) -> Line2D:
    """An entry of a legend."""
    return line_key(label, **({"linestyle": ""} | mark.style | style))


def line_key(label: str, **style: object) -> Line2D:
    """An entry of a legend for a line without points."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **style)


def plain_log(axis: Axis, subs: Sequence[float] = (1, 2, 5), most: int | None = None) -> None:
    """A logarithmic axis whose ticks are plain numbers, at most so many."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    plain_ticks(axis, subs, most)
