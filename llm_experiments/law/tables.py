"""Files of the law's tables: the same bytes for the same rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd

from kaestat.core.storage import write_atomically

COMPLETIONS, PROMPTS, SUMMARY = "completions.csv.gz", "prompts.csv", "summary.csv"
PREDICTIONS, PROVENANCE = "predictions.csv", "provenance.json"
DIGITS = "%.5g"


def write_csv(path: Path, frame: pd.DataFrame) -> None:
    """A table with five digits."""
    write_atomically(path, frame.to_csv(index=False, float_format=DIGITS, lineterminator="\n"))


def write_gzip(path: Path, frame: pd.DataFrame) -> None:
    """The same, compressed, the same bytes for the same table."""
    text = frame.to_csv(index=False, float_format=DIGITS, lineterminator="\n")
    write_atomically(path, gzip.compress(text.encode(), mtime=0))
