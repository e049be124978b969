"""Printing a benchmark's rows, and the table of all of them with its provenance."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.rows import Row, markdown


def show(claim: str, rows: Sequence[Row]) -> None:
    """Print one benchmark."""
    print(f"\n{claim}\n\n{markdown(rows)}", flush=True)
