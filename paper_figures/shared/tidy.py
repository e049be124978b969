"""From a study's summary, one row per measure, to tables with a column per measure; and numbers as text."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

ROUNDING = 1e-12  # an error smaller than this share of the number is none


def by_measure(summary: pd.DataFrame, key: Sequence[str], measures: Sequence[str]) -> pd.DataFrame:
    """Measures side by side.

    summary: Of a study.
    key: Columns that tell rows apart.
    measures: The first gives the rows; where another has none, it is NaN.
    Returns: The key, then ``MEASURE, MEASURE_mcse`` of each, and ``n``.
    Raises ValueError if the summary has no row of a measure.
    """
    parts = {}
    for measure in measures:
        rows = summary[summary["measure"] == measure]
        if rows.empty:
            raise ValueError(f"summary has no measure {measure!r}; give the summary of the study that this shows.")
        parts[measure] = rows.set_index(list(key))
    first = parts[measures[0]]
    frame = pd.DataFrame(index=first.index)
    for measure, rows in parts.items():
        frame[measure], frame[f"{measure}_mcse"] = rows["estimate"], rows["mcse"]
    return frame.assign(n=first["n"]).reset_index()


def with_error(value: float, mcse: float) -> str:
    """ "1.0340 (0.0028)": to two digits of the error; without one, to four digits."""
    if pd.isna(value):
        return ""
    if pd.isna(mcse) or mcse <= ROUNDING * abs(value) or math.isinf(value):
        return number(value)
    places = max(0, 1 - math.floor(math.log10(mcse)))
    return f"{value:.{places}f} ({mcse:.{places}f})"


def text_grid(
    frame: pd.DataFrame, value: str, row: str, rows: Mapping[str, str], column: str, columns: Mapping[object, str]
) -> pd.DataFrame:
    """Cells "number (error)" of a measure: a row for each value of one column, a column for each of another.

    value: The measure; ``VALUE_mcse`` has its error.
    rows, columns: From the values to their labels; a cell that the frame lacks is empty.
    """
    cells = frame.set_index([row, column])[[value, f"{value}_mcse"]]
    body = [
        [label, *(with_error(*cells.loc[(name, at)]) if (name, at) in cells.index else "" for at in columns)]
        for name, label in rows.items()
    ]
    return pd.DataFrame(body, columns=["", *columns.values()])


def number(value: float) -> str:
    """Four significant digits; empty for NaN."""
    if pd.isna(value):
        return ""
    return "∞" if value == math.inf else f"{value:.4g}"


def span(values: Sequence[float], form: str = ".2f") -> str:
    """ "0.61 to 0.75": the smallest and the largest, or the one number if both look the same."""
    low, high = (format(end, form) for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
