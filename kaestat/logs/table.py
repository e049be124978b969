"""A table of completions before it becomes a log: columns by name, with checks that name the faulty row."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import accumulate
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kaestat.core.checks import MAX_REWARD, MAX_STEP
from kaestat.core.spelling import counted, named, spelled
from kaestat.logs.columns import LEFT_OUT, plain_name, warn
from kaestat.logs.labels import Labels
from kaestat.logs.measures import MAX_MEASURE, outside

if TYPE_CHECKING:
    import pandas as pd

_BOOLEANS = {"true": 1.0, "false": 0.0}
_NO_NUMBER = ("", "nan", "na", "null", "none")  # a missing number, in text


def drops(missing: str) -> bool:
    """Whether rows that lack a value are left out; a ValueError if ``missing`` is neither "refuse" nor "drop"."""
    if not isinstance(missing, str) or missing not in ("refuse", "drop"):
        raise ValueError(f'{named("missing")} must be "refuse" or "drop", got {missing!r}.')
    return missing == "drop"


@dataclass(frozen=True, eq=False)
class Table:
    """Some columns of one file."""

    source: Path | str  # The file, for messages
    # Values of each column as in the file; None or NaN for missing ones. `Labels` if the column is coded
    columns: Mapping[str, Sequence[Any] | np.ndarray | Labels]
    place: Callable[[int], str]  # Returns the place of a row (0-based) in the file, for messages: ``"line 7"``
    text_labels: bool = False  # Whether 1 and "1" are the same prompt or group, as in JSON

    @classmethod
    def joined(cls, source: Path | str, tables: Sequence[Table]) -> Table:
        """Tables of several files with the same columns, one after the other; ``source`` is their folder."""
        if len(tables) == 1:
            return tables[0]
        ends = np.array([0, *accumulate(map(len, tables))])

        def place(row: int) -> str:
            which = int(np.searchsorted(ends, row, side="right")) - 1
            return f"{Path(tables[which].source).name}, {tables[which].place(row - int(ends[which]))}"

        columns = {name: _joined([table.columns[name] for table in tables]) for name in tables[0].columns}
        return cls(source, columns, place, text_labels=tables[0].text_labels)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self, chosen: np.ndarray) -> Table:
        """The rows where a mask is True."""
        if chosen.all():
            return self
        at = np.flatnonzero(chosen)
        columns = {name: _rows_of(column, at) for name, column in self.columns.items()}
        return replace(self, columns=columns, place=lambda row: self.place(int(at[row])))

    def complete(self, names: Mapping[str, str]) -> tuple[Table, int]:
        """The rows that have a value for each of these parts, and how many do not; a `LogWarning` counts those."""
        lacks = {name: self.lacks(part, name) for part, name in names.items()}
        gone = np.any(list(lacks.values()), axis=0)
        if gone.any():
            row = int(np.argmax(gone))
            what = " or ".join(name for name, missing in lacks.items() if missing.any())
            warn(
                f"{self.source}: {gone.sum():,} of {counted(len(self), 'row')} left out for lack of {what} (the first: "
                f"{self.place(row)})."
            )
        return self.rows(~gone), int(gone.sum())

    def lacks(self, part: str, name: str) -> np.ndarray:
        """Which rows have no value."""
        if part in ("prompt", "group"):
            labels = self.coded(name)
            return np.fromiter(map(_is_missing, labels.distinct), dtype=bool)[labels.codes]
        no_number = np.isnan(self.numbers(name))
        for row in np.flatnonzero(no_number).tolist():
            value = self.columns[name][row]
            no_number[row] = _is_missing(value) or str(value).strip().lower() in _NO_NUMBER
        return no_number

    def rewards(self, name: str) -> np.ndarray:
        """A column of rewards, all of them finite numbers; True and False are 1 and 0."""
        values = self.numbers(name)
        why = f"a reward must be a number within {MAX_REWARD:g}, True or False. Remove or fix the row"
        self._refuse(~(np.abs(values) <= MAX_REWARD), name, why)
        return values

    def measures(self, name: str, part: str) -> np.ndarray:
        """A column of weights, lengths or importance ratios, all of them numbers from 0."""
        values = self.numbers(name)
        why = f"a {part} must be a number from 0 to {MAX_MEASURE:g}. Remove or fix the row"
        without = f"or read the log without this column: {spelled(part, LEFT_OUT)}"
        self._refuse(outside(values), name, f"{why}, {without}")
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
        """A column of prompts or groups, all given; conversations (lists of messages) become JSON text."""
        self._refuse(self.lacks("prompt", name), name, "every completion needs one. Remove or fix the row")
        labels = self.coded(name)
        if plain_name(name) == "messages":
            labels = Labels.of_coded(labels.codes, map(_question, labels.distinct))
        return labels

    def coded(self, name: str) -> Labels:
        """A column of prompts or groups, which may lack some."""
        column = self.columns[name]
        return column if isinstance(column, Labels) else code_labels(column, self.text_labels)

    def numbers(self, name: str) -> np.ndarray:
        """A column as float64, NaN where a value is missing or not a number."""
        given: Any = self.columns[name]
        if isinstance(given, Labels):  # the same column plays two parts
            return replace(self, columns={name: given.distinct}).numbers(name)[given.codes]
        with suppress(ValueError, TypeError, OverflowError):
            quick = np.array(given, dtype=np.float64)  # None is NaN
            if quick.ndim == 1:
                return quick
        return np.array([_number(value) for value in given])

    def _refuse(self, bad: np.ndarray, name: str, why: str) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            value = self.columns[name][row]
            value = value.item() if isinstance(value, np.generic) else value
            what = "is missing" if _is_missing(value) else f"is {value!r}"
            why += f", or leave such rows out by {spelled('missing', 'drop')}" if _is_missing(value) else ""
            more = f" ({bad.sum()} such rows)" if bad.sum() > 1 else ""
            raise ValueError(f"{self.source}, {self.place(row)}: {name} {what}; {why}{more}.")


def code_labels(values: Sequence[Any] | np.ndarray | pd.Series[Any], as_text: bool = False) -> Labels:
    """A column of prompts or groups in coded form; missing ones become labels too, which are not used.

    ``as_text`` makes numbers and booleans the text that JSON has for them, so that 1 and "1" are the same.
    """
    series: Any = values
    if hasattr(series, "iloc"):
        import pandas as pd

        if isinstance(series.dtype, pd.CategoricalDtype | pd.StringDtype) or series.dtype.kind in "iub":
            codes, distinct = pd.factorize(series, use_na_sentinel=True)
            return Labels.of_coded(codes + 1, [None, *distinct.tolist()])  # missing ones have -1
    listed = values.tolist() if hasattr(values, "tolist") else values
    try:
        return Labels.of(map(_text if as_text else _hashable, listed))
    except TypeError as error:
        raise TypeError(f"prompts and groups must be hashable ({error}); use their text, or a number.") from None


def _joined(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], Labels):
        return Labels.joined(columns)
    return np.concatenate(columns) if isinstance(columns[0], np.ndarray) else [v for each in columns for v in each]


def _rows_of(column: Any, at: np.ndarray) -> Any:
    if isinstance(column, Labels):
        return column.take(at)
    return column[at] if isinstance(column, np.ndarray) else [column[row] for row in at.tolist()]


def _number(value: Any) -> float:
    """A number, or one in text; booleans in words are 1 and 0, integers beyond any float infinite, the rest NaN."""
    if isinstance(value, str) and value.strip().lower() in _BOOLEANS:
        return _BOOLEANS[value.strip().lower()]
    try:
        return float(value) if isinstance(value, str | Real | Decimal) else np.nan
    except ValueError:
        return np.nan
    except OverflowError:
        return np.inf


def _is_missing(value: Any) -> bool:
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")  # pandas.NA and NaT, without loading pandas
        or (isinstance(value, float) and value != value)
        or value == ""
    )


def _text(value: Any) -> Hashable:
    """A value of JSON as text: 1.0 as 1."""
    if isinstance(value, str) or _is_missing(value):
        return value
    whole = isinstance(value, float) and value.is_integer()
    return _hashable(value) if isinstance(value, list | dict) else json.dumps(int(value) if whole else value)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):  # pandas has lists of Parquet files so
        value = value.tolist()
    if isinstance(value, list | dict):
        return json.dumps(_without_nulls(value), sort_keys=True, ensure_ascii=False, default=str)
    return value


def _question(text: Any) -> Any:
    """A conversation without what follows the user's last message: that is the completion."""
    with suppress(ValueError, RecursionError):
        messages = json.loads(text) if isinstance(text, str) and text.startswith("[") else []
        said = [k for k, each in enumerate(messages) if isinstance(each, dict) and each.get("role") == "user"]
        return _hashable(messages[: said[-1] + 1]) if said else text
    return text


def _without_nulls(value: Any) -> Any:
    """Parquet fills the messages of a conversation with nulls, depending on what else stands in the file."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
