"""Memory and time of the reward history at a million prompts.

A fresh interpreter per case records every prompt ten times, in batches of 10,000 through ``RewardHistory.record``,
and reports the growth of its resident set: settled (with the history alone left alive) and at its highest. The ids
live in the history alone, and their objects are part of the figure. The horizon is infinite, so all visits stay.
Memory is O(prompts x visits kept): the bytes per visit do not depend on the number of prompts.
"""

import json
import subprocess
import sys

import numpy as np

from benchmarks.rows import Row
from benchmarks.timing import estimate

CODE = ("kaestat/history",)
CLAIM = "A history of 1 million prompts × 10 visits takes less than 300 MB, ids included"
SIZES = {"full": ((100_000, 10, 10_000, 3), (1_000_000, 10, 10_000, 3)), "tiny": ((40, 3, 8, 1),)}
LIMIT = 300.0  # MB

MEASURE = """
import gc, json, resource, sys, time
import numpy as np
from kaestat import RewardHistory

id_type, n_prompts, n_visits, batch = sys.argv[1], *map(int, sys.argv[2:])


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def ids(start):
    return [i if id_type == "integer" else f"train/{i:07d}" for i in range(start, start + batch)]


before = resident()
history = RewardHistory()
sums = {name: np.ones(batch) for name in ("count", "total", "total_sq")}
seconds, step = [], 0
for visit in range(n_visits):
    for start in range(0, n_prompts, batch):
        keys = ids(start)
        begin = time.perf_counter()
        history.record(keys, step=step, **sums)
        seconds.append(time.perf_counter() - begin)
        step += 1
del keys, sums
settled = resident()
with open("/proc/self/status") as file:
    highest = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) * 1024 / 1e6
print(json.dumps({
    "settled": settled - before, "highest": highest - before, "arrays": history.nbytes / 1e6, "seconds": seconds,
}))
"""


def run(size: str = "full") -> list[Row]:
    """Settled and highest resident memory, and the time of a recorded step, by number of prompts and type of id."""
    return [row for shape in SIZES[size] for id_type in ("string", "integer") for row in _case(id_type, *shape)]


def _case(id_type: str, n_prompts: int, n_visits: int, batch: int, repetitions: int) -> list[Row]:
    measured = [_measure(id_type, n_prompts, n_visits, batch) for _ in range(repetitions)]
    settled, highest, arrays = (np.array([m[name] for m in measured]) for name in ("settled", "highest", "arrays"))
    seconds = np.concatenate([m["seconds"] for m in measured])
    case = f"{n_prompts:,} prompts × {n_visits} visits, {id_type} ids"
    return [
        Row(case, "resident memory, settled", "MB", estimate(settled), at_most=LIMIT),
        Row(case, "resident memory, highest", "MB", estimate(highest)),
        Row(case, "of it in arrays", "MB", estimate(arrays)),
        Row(case, "resident memory per visit, settled", "bytes", estimate(1e6 * settled / (n_prompts * n_visits))),
        Row(case, f"record {batch:,} prompts", "ms", estimate(1e3 * seconds)),
    ]


def _measure(id_type: str, n_prompts: int, n_visits: int, batch: int) -> dict:
    arguments = [id_type, *map(str, (n_prompts, n_visits, batch))]
    finished = subprocess.run([sys.executable, "-c", MEASURE, *arguments], capture_output=True, text=True, check=True)
    return json.loads(finished.stdout)
