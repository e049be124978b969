"""Printing a benchmark's rows, and the table of all of them with its provenance."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.rows import Row, markdown
from kaestat.core.storage import write_atomically

PREFACE = """# Benchmarks

Measured by `python -m benchmarks` in one run. Times are processor time. The interval is the distribution-free 95 %
interval of the median (below six repetitions the whole range). A bound is what the project promises; a row without one
is for information. What exactly is timed stands at the top of each script.
"""


def show(claim: str, rows: Sequence[Row]) -> None:
    """Print one benchmark."""
    print(f"\n{claim}\n\n{markdown(rows)}", flush=True)


def write(folder: Path, results: Mapping[str, tuple[str, Sequence[Row]]], provenance: Mapping[str, str]) -> None:
    """Write ``results.md`` and ``results.json``.

    results: Claim and rows of each benchmark, by its name.
    """
    facts = ", ".join(f"{name} {value}" for name, value in provenance.items())
    sections = [f"## {claim}\n\n`benchmarks/{name}.py`\n\n{markdown(rows)}" for name, (claim, rows) in results.items()]
    write_atomically(folder / "results.md", "\n\n".join([PREFACE + f"\n{facts}.", *sections]) + "\n")
    plain = {
        "provenance": dict(provenance),
        "benchmarks": {
            name: {"claim": claim, "rows": [dataclasses.asdict(row) | {"holds": row.holds} for row in rows]}
            for name, (claim, rows) in results.items()
        },
    }
    write_atomically(folder / "results.json", json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
