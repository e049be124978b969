"""What the figures share: labels, colours, and axes with plain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kaestat.report.plots import STYLE, plain_ticks
from paper_figures.shared import paper

if TYPE_CHECKING:
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


@contextmanager
def styled(width: float, height: float) -> Iterator[Figure]:
    """An empty figure of that size in inches, and the style of all figures while it is drawn."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def line_key(label: str, **style: object) -> Line2D:
    """An entry of a legend for a line without points."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **style)


def plain_log(axis: Axis, subs: Sequence[float] = (1, 2, 5), most: int | None = None) -> None:
    """A logarithmic axis whose ticks are plain numbers, at most so many."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    plain_ticks(axis, subs, most)
