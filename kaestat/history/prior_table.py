"""Tables of priors: a column of prompts, one of mean rewards and one of counts."""

from __future__ import annotations

import os
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

KINDS = (".csv", ".jsonl", ".parquet")


def table_of_file(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The table in a CSV, JSON lines or Parquet file; a ValueError for another ending, or if it cannot be read."""
    import pandas as pd

    if (kind := Path(path).suffix.lower()) not in KINDS:
        raise ValueError(f"{path}: a prior is kept in .csv, .jsonl or .parquet; give other tables to Prior.of_table.")
    try:
        if kind == ".jsonl":
            return pd.read_json(path, lines=True, dtype=False)
        return pd.read_parquet(path) if kind == ".parquet" else pd.read_csv(path)
    except (ValueError, pd.errors.ParserError) as error:
        raise ValueError(f"{path}: cannot be read ({error}).") from error


def usable_rows(table: Any, prompt: str, mean: str, count: str) -> tuple[list[Hashable], np.ndarray, np.ndarray]:
    """Ids, means and counts of the rows that have both numbers.

    A ValueError if a column is missing, and a TypeError if there are none, or a mean or count is not a number.
    """
    names = getattr(table, "column_names", None)  # of Hugging Face's data sets, whose columns are not iterated over
    try:
        found = list(table) if names is None else list(names)
    except TypeError:
        raise TypeError(f"table must give columns by name, got {type(table).__name__}.") from None
    for name in (prompt, mean, count):
        if name not in found:
            raise ValueError(
                f"prior: no column {name!r} among {', '.join(map(str, found))}; name the columns with prompt=, mean= "
                "and count=."
            )
    ids = table[prompt].tolist() if hasattr(table[prompt], "tolist") else list(table[prompt])
    means, counts = (_numbers(name, table[name]) for name in (mean, count))
    if not len(ids) == len(means) == len(counts):
        sizes = f"{len(ids)}, {len(means)} and {len(counts)}"
        raise ValueError(f"prior: columns {prompt}, {mean} and {count} have {sizes} rows; give as many of each.")
    usable = np.flatnonzero(~np.isnan(means) & ~np.isnan(counts))
    return [ids[row] for row in usable.tolist()], means[usable], counts[usable]


def _numbers(name: str, column: Any) -> np.ndarray:
    import pandas as pd

    try:
        return np.array([np.nan if value is None or value is pd.NA else value for value in column], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"prior: column {name!r} must hold numbers ({error}).") from None
