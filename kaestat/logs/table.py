"""A table of completions before it becomes a log: columns by name, with checks that name the faulty row."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kaestat.core.checks import MAX_REWARD, MAX_STEP
from kaestat.core.spelling import spelled
from kaestat.logs.columns import LEFT_OUT
from kaestat.logs.labels import Labels
from kaestat.logs.measures import MAX_MEASURE, outside

if TYPE_CHECKING:
    import pandas as pd

_BOOLEANS = {"true": 1.0, "false": 0.0}


class InvalidRows(ValueError):
    """The error for rows of a file that cannot be read; the other rows may be valid.

    ``rows`` are those with the same fault, 0-based, without blank lines; None if unknown.
    """

    def __init__(self, message: str, rows: Sequence[int] | None = None):
        super().__init__(message)
        self.rows = rows


class UnevenRows(ValueError):
    """The error for rows with different columns, each of which alone is valid."""


@dataclass(frozen=True, eq=False)
class Table:
    """Some columns of one file."""

    source: Path | str  # The file, for messages
    # Values of each column as in the file; None or NaN for missing ones. `Labels` if the column is coded
    columns: Mapping[str, Sequence[Any] | np.ndarray | pd.Series[Any] | Labels]
    place: Callable[[int], str]  # Returns the place of a row (0-based) in the file, for messages: ``"line 7"``
    origin: Sequence[int] | None = None  # The file's row number of each row; None if no row was left out
    later: frozenset[str] = frozenset()  # Columns that other rows have and the first one lacks

    def rewards(self, name: str, *, allow_missing: bool = False) -> np.ndarray:
        """A column of rewards; True and False are 1 and 0, and missing ones, if allowed, NaN.

        Raises a ValueError if one of them is missing, not a number or not finite.
        """
        values = self.numbers(name)
        bad = ~((values <= MAX_REWARD) & (values >= -MAX_REWARD))
        if allow_missing:
            bad[[row for row in np.flatnonzero(bad).tolist() if _is_missing(self._value(name, row))]] = False
        self._refuse(
            bad, name, f"a reward must be a number within {MAX_REWARD:g}, True or False. Remove or fix the row"
        )
        return values

    def measures(self, name: str, part: str, *, allow_missing: bool = False) -> np.ndarray:
        """A column of weights, lengths or importance ratios, one of `kaestat.logs.columns.MEASURES`.

        Missing ones, if allowed, are NaN. Raises a ValueError if one of them is missing, not a number, negative, or too
        large.
        """
        values = self.numbers(name)
        bad = outside(values)
        if allow_missing:
            bad[[row for row in np.flatnonzero(bad).tolist() if _is_missing(self._value(name, row))]] = False
        without = f"or read the log without this column: {spelled(part, LEFT_OUT)}"
        self._refuse(
            bad, name, f"a {part} must be a number from 0 to {MAX_MEASURE:g}. Remove or fix the row, {without}"
        )
        return values

    def steps(self, name: str) -> np.ndarray:
        """A column of training steps; a ValueError if one of them is missing or not a whole number of at least 0."""
        values = self.numbers(name)
        with np.errstate(invalid="ignore"):
            whole = (values >= 0) & (values <= MAX_STEP) & (values == np.floor(values))
        why = f"a step must be a whole number from 0 to {MAX_STEP}. Number them 0, 1, 2, ..., or fix the row"
        self._refuse(~whole, name, why)
        return values.astype(np.int64)

    def labels(self, name: str) -> Labels:
        """A column of prompts or groups; conversations (lists of messages) become JSON text.

        Raises a ValueError if one of them is missing or empty.
        """
        column = self.columns[name]
        labels = column if isinstance(column, Labels) else code_labels(column)
        missing = np.fromiter(map(_is_missing, labels.distinct), dtype=bool, count=len(labels.distinct))
        self._refuse(missing[labels.codes], name, "every completion needs one. Remove or fix the row")
        return labels

    def numbers(self, name: str) -> np.ndarray:
        """A column as float64, NaN where a value is missing or not a number."""
        given = self.columns[name]
        if isinstance(given, Labels):  # the same column plays two parts
            return Table(self.source, {name: given.distinct}, self.place).numbers(name)[given.codes]
        if isinstance(given, list) and (quick := _array_of(given)) is not None:
            return quick
        import pandas as pd

        try:
            column = pd.Series(given)
        except OverflowError:  # pandas before 3.1, of an integer beyond any float
            column = pd.Series(given, dtype=object)
        if column.dtype.kind not in "biuf":
            values = [_plain(value) for value in column]
            column = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce")
        return column.to_numpy(dtype=np.float64, na_value=np.nan)

    def _value(self, name: str, row: int) -> Any:
        column = self.columns[name]
        return column.iloc[row] if hasattr(column, "iloc") else column[row]

    def _refuse(self, bad: np.ndarray, name: str, why: str) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            value = self._value(name, row)
            value = value.item() if isinstance(value, np.generic) else value
            what = "is missing" if _is_missing(value) else f"is {value!r}"
            more = f" ({bad.sum()} such rows)" if bad.sum() > 1 else ""
            rows = np.flatnonzero(bad).tolist()
            of_file = rows if self.origin is None else [self.origin[row] for row in rows]
            raise InvalidRows(f"{self.source}, {self.place(row)}: {name} {what}; {why}{more}.", of_file)


def _array_of(numbers: list[Any]) -> np.ndarray | None:
    """A list of numbers as float64, in a tenth of the time of a Series; None if other things are among them."""
    if not set(map(type, numbers)) <= {bool, int, float}:
        return None
    try:
        return np.array(numbers, dtype=np.float64)
    except OverflowError:
        return None


def code_labels(values: Sequence[Any] | np.ndarray | pd.Series[Any]) -> Labels:
    """A column of prompts or groups in coded form; missing ones become labels too, which are not used."""
    series: Any = values
    if hasattr(series, "iloc"):
        import pandas as pd

        if isinstance(series.dtype, pd.CategoricalDtype | pd.StringDtype) or series.dtype.kind in "iub":
            codes, distinct = pd.factorize(series, use_na_sentinel=True)
            return Labels.of_coded(codes + 1, [None, *distinct.tolist()])  # missing ones have -1
    try:
        return Labels.of(map(_hashable, values.tolist() if hasattr(values, "tolist") else values))
    except TypeError as error:
        raise TypeError(f"prompts and groups must be hashable ({error}); use their text, or a number.") from None


def _plain(value: Any) -> Any:
    """Booleans in words as numbers; integers beyond any float as infinite."""
    if isinstance(value, str):
        return _BOOLEANS.get(value.strip().lower(), value)
    return np.inf if isinstance(value, int) and abs(value) > sys.float_info.max else value


def _is_missing(value: Any) -> bool:
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")  # pandas.NA and NaT, without loading pandas
        or (isinstance(value, float) and value != value)
        or value == ""
    )


def _hashable(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):  # pandas has lists of Parquet files so
        value = value.tolist()
    if isinstance(value, list | dict):
        return json.dumps(_without_nulls(value), sort_keys=True, ensure_ascii=False, default=str)
    return value


def _without_nulls(value: Any) -> Any:
    """Parquet fills the messages of a conversation with nulls, depending on what else stands in the file."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
