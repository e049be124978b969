"""A step of the prompt sampler: what it costs to know 17,000 or a million prompts.

Timed: ``PromptSampler.observe`` of a step's 512 completions (the predictor records them and predicts their prompts
anew) and ``PromptSampler.draw`` of the next step's (allocation over all prompts, systematic sampling), with the default
policy and predictor, free numbers of completions and string ids, once every prompt has been seen. Apart from it, what
the sampler does not need: `AdvantageEstimator.predict` of all prompts at once, by ``kae`` with a fixed bandwidth, ten
visits of each. Times are those of the processor. Memory is that of a process of its own, in which a step's allocations
are traced by tracemalloc: what is held at most beyond what was there before the step. The ids themselves are the
user's; what the sampler keeps of all prompts (predictions, the place of each id, the predictor's history) is reported
apart, as the growth of the resident set. For the committed numbers BLAS had one thread (``OPENBLAS_NUM_THREADS=1``).
"""

import json
import subprocess
import sys
import time

import numpy as np

from benchmarks.rows import Row
from benchmarks.timing import estimate
from kaestat import AdvantageEstimator

CODE = ("kaestat/sampling",)
CLAIM = "A sampling step takes less than 20 ms with 17,000 prompts, and less than 1 s and 200 MB with a million"
SIZES = {  # prompts, steps measured, most milliseconds of a step, most MB of one
    "full": ((17_000, 60, 20.0, None), (1_000_000, 15, 1000.0, 200.0)),
    "tiny": ((40, 6, 1000.0, 200.0),),
}
BUDGET, VISITS, REPETITIONS = 512, 10, 11

MEASURE = """
import gc, json, resource, sys, time, tracemalloc
import numpy as np
from kaestat.sampling import PromptSampler

n_prompts, n_steps, budget = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
value = rng.random(n_prompts)
ids = [f"train/{i:07d}" for i in range(n_prompts)]
place = {key: i for i, key in enumerate(ids)}


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def scored(keys):
    return (rng.random(len(keys)) < value[[place[key] for key in keys]]).astype(float)


before = resident()
sampler = PromptSampler(ids, budget)
batches = [ids[start : start + 20_000] for start in range(0, n_prompts, 20_000)]
for step, keys in enumerate(batches):
    sampler.observe(keys, scored(keys), step)
kept = resident() - before
draws, observations, peaks, first = [], [], [], len(batches)
for step in range(first, first + n_steps + 3):
    traced = step >= first + n_steps
    if traced:
        gc.collect()
        tracemalloc.start()
    begin = time.process_time()
    draw = sampler.draw(step)
    drawn = time.process_time() - begin
    rows = draw.rows()
    reward = scored(rows)
    begin = time.process_time()
    sampler.observe(rows, reward, step)
    observed = time.process_time() - begin
    if traced:
        peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
    else:
        draws.append(drawn)
        observations.append(observed)
print(json.dumps({"draw": draws, "observe": observations, "peak": peaks, "kept": kept}))
"""


def run(size: str = "full") -> list[Row]:
    """Milliseconds and megabytes of a step, by number of prompts; and a prediction of all prompts at once."""
    rows = [row for shape in SIZES[size] for row in _step(*shape)]
    return [*rows, _prediction_of_all(SIZES[size][0][0])]


def _step(n_prompts: int, n_steps: int, most_ms: float, most_mb: float | None) -> list[Row]:
    arguments = [sys.executable, "-c", MEASURE, *map(str, (n_prompts, n_steps, BUDGET))]
    finished = subprocess.run(arguments, capture_output=True, text=True, check=True)
    found = {name: np.array(numbers) for name, numbers in json.loads(finished.stdout).items()}
    half = n_steps // 2  # the first steps widen the history
    draw, observe = 1e3 * found["draw"][half:], 1e3 * found["observe"][half:]
    case = f"{n_prompts:,} prompts, {BUDGET} completions"
    return [
        Row(case, "observe", "ms", estimate(observe)),
        Row(case, "draw", "ms", estimate(draw)),
        Row(case, "step: observe and draw", "ms", estimate(observe + draw), most_ms),
        Row(case, "memory of a step, highest", "MB", estimate(found["peak"]), most_mb),
        Row(case, "resident memory, kept", "MB", estimate(np.atleast_1d(found["kept"]))),
    ]


def _prediction_of_all(n_prompts: int) -> Row:
    rng, ids = np.random.default_rng(1), [f"train/{i:07d}" for i in range(n_prompts)]
    estimator, seconds = AdvantageEstimator("kae", bandwidth=10), []
    for step in range(VISITS):
        estimator.observe(ids, (rng.random(n_prompts) < 0.5).astype(float), step)
    for _ in range(REPETITIONS):
        begin = time.process_time()
        estimator.predict(ids, VISITS)
        seconds.append(time.process_time() - begin)
    case = f"{n_prompts:,} prompts, {VISITS} visits each"
    return Row(case, "predict all, kae:bandwidth=10", "ms", estimate(1e3 * np.array(seconds)), 20.0)
