"""What a benchmark returns: rows of measured numbers, each with the bound it must keep."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.timing import Estimate


@dataclass(frozen=True)
class Row:
    """One measured number.

    case: Size and kind of the input.
    quantity: What was measured, and over what.
    unit: ``"ms"``, ``"s"`` or ``"MB"``.
    value: None if it could not be measured here; ``note`` then says why.
    at_most: The bound that the project promises; None where the number is only for information.
    """

    case: str
    quantity: str
    unit: str
    value: Estimate | None
    at_most: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the median keeps the bound; None without a bound or a measurement."""
        return None if self.value is None or self.at_most is None else self.value.median <= self.at_most


def number(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| case | quantity | unit | median | interval | bound | holds |", "|---|---|---|--:|:-:|--:|:-:|"]
    for row in rows:
        bound = "" if row.at_most is None else f"≤ {number(row.at_most)}"
        measured = ("not measured", "")
        if row.value is not None:
            measured = number(row.value.median), f"{number(row.value.low)} – {number(row.value.high)}"
        holds = {True: "yes", False: "**no**", None: ""}[row.holds]
        lines.append("| " + " | ".join([row.case, row.quantity, row.unit, *measured, bound, holds]) + " |")
    notes = dict.fromkeys(row.note for row in rows if row.note)
    return "\n".join([*lines, *(f"\n{note}" for note in notes)])
