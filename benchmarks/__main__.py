"""``python -m benchmarks``: run all benchmarks, or those named, and print them. All together are written to
``results.md`` and ``results.json`` here; with ``--out`` any are, in that folder."""

import argparse
import time
from pathlib import Path

from benchmarks import BENCHMARKS
from benchmarks.measure import measure_apart
from benchmarks.provenance import provenance
from benchmarks.report import show, write


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--out", type=Path, help="folder of the tables; this package's for all benchmarks")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes, to see that everything runs")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; choose of {', '.join(BENCHMARKS)}.")
    origin, results = provenance(), {}
    for name in arguments.names or BENCHMARKS:
        begin = time.perf_counter()
        results[name] = measure_apart(name, "tiny" if arguments.tiny else "full")
        show(*results[name])
        print(f"\n({name}: {time.perf_counter() - begin:.0f} s)", flush=True)
    if arguments.out or not arguments.names:
        write(arguments.out or Path(__file__).parent, results, origin)


if __name__ == "__main__":
    main()
