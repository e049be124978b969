"""The time that ``import kaestat`` takes in a fresh interpreter, and what takes it.

Wall clock of the import statement alone, interpreters with and without pandas taking turns after a first start that
warms the disk cache. The share of each package comes from ``-X importtime``: the self times of its modules.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict

import numpy as np

from benchmarks.report import show
from benchmarks.rows import Row
from benchmarks.timing import estimate

CODE = ("kaestat/__init__.py",)
CLAIM = "import kaestat takes less than 0.7 s"
SIZES = {"full": 10, "tiny": 1}
LEADING_PACKAGES = 6
TIMED = "import time; begin = time.perf_counter(); import {module}; print(time.perf_counter() - begin)"


def run(size: str = "full") -> list[Row]:
    """Seconds of the import, of pandas' and NumPy's alone, and the leading packages within it."""
    repetitions = SIZES[size]
    modules = ("kaestat", "pandas", "numpy")
    seconds = {module: np.empty(repetitions) for module in modules}
    for repetition in range(-1, repetitions):
        for module in modules:
            elapsed = float(_python("-c", TIMED.format(module=module)).stdout)
            if repetition >= 0:
                seconds[module][repetition] = elapsed
    case = "fresh interpreter"
    return [
        Row(case, "import kaestat", "s", estimate(seconds["kaestat"]), at_most=0.7),
        *(Row(case, f"import {module} alone", "s", estimate(seconds[module])) for module in modules[1:]),
        *_breakdown(repetitions),
    ]


def _breakdown(repetitions: int) -> list[Row]:
    """Self time of the packages that take longest, from ``-X importtime``."""
    samples = [_self_times(_python("-X", "importtime", "-c", "import kaestat").stderr) for _ in range(repetitions)]
    packages = sorted({name for sample in samples for name in sample}, key=lambda name: -samples[0].get(name, 0.0))
    return [
        Row("within import kaestat", f"modules of {name}", "s", estimate(np.array([s.get(name, 0.0) for s in samples])))
        for name in packages[:LEADING_PACKAGES]
    ]


def _self_times(log: str) -> dict[str, float]:
    """Seconds by package, the standard library as one."""
    seconds: dict[str, float] = defaultdict(float)
    for microseconds, module in re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)$", log, flags=re.MULTILINE):
        package = module.split(".")[0]
        standard = package in sys.stdlib_module_names
        seconds["the standard library" if standard else package] += int(microseconds) / 1e6
    return seconds


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


if __name__ == "__main__":
    show(CLAIM, run())
