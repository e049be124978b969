"""Running a benchmark in a process of its own."""

import importlib
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.rows import Row


def measure(name: str, size: str) -> tuple[str, Sequence[Row]]:
    """Claim and rows of the benchmark of that name."""
    benchmark = importlib.import_module(f"benchmarks.{name}")
    return benchmark.CLAIM, benchmark.run(size)


def measure_apart(name: str, size: str) -> tuple[str, Sequence[Row]]:
    """`measure` in a fresh process: what others left in memory allocators and thread pools does not count."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, name, size).result()
