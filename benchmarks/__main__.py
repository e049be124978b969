"""``python -m benchmarks``: run all benchmarks, print them, and write ``results.md`` and ``results.json`` here."""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks import BENCHMARKS
from benchmarks.provenance import provenance
from benchmarks.report import show, write
from benchmarks.rows import Row


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the tables")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes, to see that everything runs")
    arguments = parser.parse_args()
    origin, results = provenance(), {}
    # A fresh process each: what one leaves behind in memory allocators and thread pools is not the next one's.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=fresh, max_tasks_per_child=1) as pool:
        for name in BENCHMARKS:
            begin = time.perf_counter()
            results[name] = pool.submit(_run, name, "tiny" if arguments.tiny else "full").result()
            show(*results[name])
            print(f"\n({name}: {time.perf_counter() - begin:.0f} s)", flush=True)
    write(arguments.out, results, origin)


def _run(name: str, size: str) -> tuple[str, Sequence[Row]]:
    benchmark = importlib.import_module(f"benchmarks.{name}")
    return benchmark.CLAIM, benchmark.run(size)


if __name__ == "__main__":
    main()
