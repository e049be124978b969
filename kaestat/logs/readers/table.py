"""A table of completions on its way into a log: columns by name, with checks that say which row is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kaestat.history import MAX_REWARD, MAX_STEP

_BOOLEANS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, eq=False)
class Table:
    """Some columns of one file.

    Attributes
    ----------
    path : Path
        The file, for messages.
    columns : mapping of str to sequence
        Values of each column as the file has them; None or NaN where one is missing.
    place : callable
        Where a row (0-based) stands in the file, for messages: ``"line 7"``.
    """

    path: Path
    columns: Mapping[str, Sequence[Any] | pd.Series[Any]]
    place: Callable[[int], str]

    def rewards(self, name: str, *, allow_missing: bool = False) -> np.ndarray:
        """A column of rewards; True and False are 1 and 0, and missing ones, if allowed, NaN.

        Raises
        ------
        ValueError
            If one of them is missing, no number or not finite.
        """
        values = self.numbers(name)
        bad = ~(np.abs(values) <= MAX_REWARD)
        if allow_missing:
            bad[[row for row in np.flatnonzero(bad).tolist() if _is_missing(self.columns[name][row])]] = False
        self._refuse(bad, name, "a reward must be a finite number, True or False. Remove or mend the row")
        return values

    def steps(self, name: str) -> np.ndarray:
        """A column of training steps.

        Raises
        ------
        ValueError
            If one of them is missing or no whole number from 0 on.
        """
        values = self.numbers(name)
        with np.errstate(invalid="ignore"):
            whole = (values >= 0) & (values <= MAX_STEP) & (values == np.floor(values))
        self._refuse(~whole, name, f"a step must be a whole number from 0 to {MAX_STEP}. Remove or mend the row")
        return values.astype(np.int64)

    def labels(self, name: str) -> list[Hashable]:
        """A column of prompts or groups; conversations (lists of messages) become their JSON text.

        Raises
        ------
        ValueError
            If one of them is missing or empty.
        """
        labels = [_hashable(value) for value in self.columns[name]]
        self._refuse(
            np.fromiter((_is_missing(label) for label in labels), dtype=bool, count=len(labels)),
            name,
            "every completion needs one. Remove or mend the row",
        )
        return labels

    def numbers(self, name: str) -> np.ndarray:
        """A column as float64, NaN where a value is missing or no number."""
        try:
            column = pd.Series(self.columns[name])
        except OverflowError:  # pandas before 3.1, of an integer beyond any float
            column = pd.Series(self.columns[name], dtype=object)
        if column.dtype.kind not in "biuf":
            values = [_plain(value) for value in column]
            column = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce")
        return column.to_numpy(dtype=np.float64, na_value=np.nan)

    def _refuse(self, bad: np.ndarray, name: str, why: str) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            value = self.columns[name][row]
            value = value.item() if isinstance(value, np.generic) else value
            what = "is missing" if _is_missing(value) else f"is {value!r}"
            more = f" ({bad.sum()} such rows)" if bad.sum() > 1 else ""
            raise ValueError(f"{self.path}, {self.place(row)}: {name} {what}; {why}{more}.")


def refuse_missing_column(path: Path, name: str, hint: str, found: Sequence[str]) -> None:
    """Raise a ValueError unless the file has one column of that name, a TypeError if it is no name."""
    if not isinstance(name, str):
        raise TypeError(f"{hint} must be the name of a column, got {name!r}.")
    if name not in found:
        raise ValueError(f"{path}: has no column {name!r}; it has {', '.join(found)}. Name the right one with {hint}=.")
    if list(found).count(name) > 1:
        raise ValueError(f"{path}: column {name!r} comes twice; rename or remove one, or name another with {hint}=.")


def _plain(value: Any) -> Any:
    """Booleans in words as numbers; integers beyond any float as infinite."""
    if isinstance(value, str):
        return _BOOLEANS.get(value.strip().lower(), value)
    return np.inf if isinstance(value, int) and abs(value) > sys.float_info.max else value


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and value != value) or value == ""


def _hashable(value: Any) -> Hashable:
    if isinstance(value, list | dict):
        return json.dumps(_without_nulls(value), sort_keys=True, ensure_ascii=False, default=str)
    return value


def _without_nulls(value: Any) -> Any:
    """Parquet fills the messages of a conversation with nulls, depending on what else stands in the file."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
