"""What a benchmark returns: rows of measured numbers, each with the bound it must keep."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.timing import Estimate


@dataclass(frozen=True)
class Row:
    """One measured number.

    case: Size and kind of the input.
    quantity: What was measured, and over what.
    unit: ``"ratio"`` or a unit such as ``"ms"`` or ``"MB"``.
    value: None if it could not be measured here; ``note`` then says why.
    at_most, at_least: The bound that the project promises; None where the number is only for information.
    """

    case: str
    quantity: str
    unit: str
    value: Estimate | None
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the median keeps the bound; None without a bound or a measurement."""
        if self.value is None or (self.at_most is None and self.at_least is None):
            return None
        below = self.at_most is None or self.value.median <= self.at_most
        return below and (self.at_least is None or self.value.median >= self.at_least)


def number(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| case | quantity | unit | median | interval | bound | holds |", "|---|---|---|--:|:-:|--:|:-:|"]
    for row in rows:
        limits = (("≤", row.at_most), ("≥", row.at_least))
        bound = "".join(f"{sign} {number(limit)}" for sign, limit in limits if limit is not None)
        measured = ("not measured", "")
        if row.value is not None:
            measured = number(row.value.median), f"{number(row.value.low)} – {number(row.value.high)}"
        holds = {True: "yes", False: "**no**", None: ""}[row.holds]
        lines.append("| " + " | ".join([row.case, row.quantity, row.unit, *measured, bound, holds]) + " |")
    notes = dict.fromkeys(row.note for row in rows if row.note)
    return "\n".join([*lines, *(f"\n{note}" for note in notes)])
