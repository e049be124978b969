"""Tables of results as CSV files: same rows, same bytes; compressed if the name ends in ``.gz``."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kaestat.core.storage import write_atomically

if TYPE_CHECKING:
    import pandas as pd


def write_table(path: str | os.PathLike[str], frame: pd.DataFrame, digits: int | None = None) -> None:
    """Write a table without its index atomically; if it exists with and without ``.gz``, only the new file stays.

    Floating-point numbers have ``digits`` significant digits; all by default.
    """
    path = Path(path)
    text = frame.to_csv(index=False, float_format=None if digits is None else f"%.{digits}g", lineterminator="\n")
    compressed = path.suffix == ".gz"
    write_atomically(path, gzip.compress(text.encode(), mtime=0) if compressed else text)
    (path.with_suffix("") if compressed else path.with_name(f"{path.name}.gz")).unlink(missing_ok=True)


def table_file(path: str | os.PathLike[str]) -> Path:
    """The file with the table ``path``: ``path`` itself, or with ``.gz`` if only that exists."""
    path = Path(path)
    compressed = path.with_name(f"{path.name}.gz")
    return compressed if compressed.is_file() and not path.is_file() else path
