"""Estimates and their intervals as small drawings, one for each row of a table, on a common axis."""

import math
from collections.abc import Sequence

WIDTH, HEIGHT, MARGIN = 168, 18, 14  # of a drawing, in pixels; the margin keeps the outer tick labels in it


def interval_marks(
    estimates: Sequence[float], lows: Sequence[float], highs: Sequence[float]
) -> tuple[str, list[str], bool]:
    """A dot for each estimate and a line for its interval, as SVG.

    Returns the tick labels for the head of the column, one drawing for each estimate, and whether the axis is
    logarithmic, which it is if everything drawn is positive. Ends of intervals are NaN where there are none. A
    ValueError if there is no finite estimate.
    """
    drawn = [x for x in (*estimates, *lows, *highs) if math.isfinite(x)]
    if not any(map(math.isfinite, estimates)):
        raise ValueError("estimates has no finite number, so that there is nothing to draw.")
    logarithmic = min(drawn) > 0
    scale = math.log10 if logarithmic else float
    ticks = _of_a_log_axis(min(drawn), max(drawn)) if logarithmic else _of_a_linear_axis(min(drawn), max(drawn))
    low, high = (scale(pick((*drawn, *ticks))) for pick in (min, max))

    def place(x: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * (scale(x) - low) / (high - low)

    grid = "".join(f'<line class="grid" x1="{place(t):.1f}" x2="{place(t):.1f}" y1="0" y2="{HEIGHT}"/>' for t in ticks)
    labels = "".join(f'<text x="{place(t):.1f}" y="{HEIGHT - 4}">{t:g}</text>' for t in ticks)
    marks = []
    for estimate, start, end in zip(estimates, lows, highs, strict=True):
        mark = grid
        if math.isfinite(start) and math.isfinite(end):
            ends = f'x1="{place(start):.1f}" x2="{place(end):.1f}"'
            mark += f'<line class="interval" {ends} y1="{HEIGHT / 2}" y2="{HEIGHT / 2}"/>'
        if math.isfinite(estimate):
            mark += f'<circle cx="{place(estimate):.1f}" cy="{HEIGHT / 2}" r="3.5"/>'
        marks.append(_svg(mark))
    return _svg(labels), marks, logarithmic


def _svg(content: str) -> str:
    return f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{content}</svg>'


def _of_a_log_axis(low: float, high: float) -> list[float]:
    """Powers of ten in the range; 1, 2 and 5 times them if that is too few, and then around it if need be."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**power for power in powers if low <= 10.0**power <= high]
    if len(tens) > 1:
        return tens
    finer = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    inside = [tick for tick in finer if low <= tick <= high]
    return inside if len(inside) > 1 else [max(t for t in finer if t <= low), min(t for t in finer if t > high)]


def _of_a_linear_axis(low: float, high: float) -> list[float]:
    """A few multiples of 1, 2 or 5 times a power of ten around the range, 0 among them if it is inside."""
    from matplotlib.ticker import MaxNLocator

    if low == high:  # every estimate equals the reference
        low, high = low - 1, high + 1
    ticks = MaxNLocator(nbins=3, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [round(float(tick), 12) + 0.0 for tick in ticks]  # + 0.0 turns -0.0 into 0.0
