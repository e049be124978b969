"""The array formula alone: ``Kae(bandwidth=10).values`` against one pass of NumPy over the same bytes.

Timed on our side: ``Kae(bandwidth=10).values`` on rewards (P, G) and visits (P, V), all float64 and in place already;
it reads the rewards and the lags, counts and totals of the visits, and writes a value per completion. The pass is
``np.add(x, 1.0, out=y)``: it reads as many bytes as the formula reads, and writes as many, into an array in place.

The formula takes some fifteen passes of its own, in blocks that stay in the processor's cache. So the bound can only
hold where the bytes exceed the cache, and the pass is held up by memory. With arrays within the last-level cache the
pass itself runs at the cache's speed, and at a few hundred prompts NumPy's cost per call is all there is.

An array of 24 MB is made and freed first, as in any process that has seen data: from then on the C library keeps freed
memory for the next call, instead of handing it back to the system after each.
"""

from __future__ import annotations

import numpy as np

from benchmarks.report import show
from benchmarks.rows import Row
from benchmarks.timing import estimate, interleaved, ratio
from kaestat import Groups, Visits, make_baseline

CODE = ("kaestat/core/arrays.py", "kaestat/baselines/kae.py")
CLAIM = "The array formula of KAE is within 5 times one NumPy pass over the same bytes"
SIZES = {
    "full": ((256, 8, 10, 1000), (16_384, 8, 10, 100), (262_144, 8, 10, 60)),
    "tiny": ((4, 2, 3, 2),),
}


def run(size: str = "full") -> list[Row]:
    """Seconds of the formula and of the pass, and their ratio, by number of prompts."""
    np.ones(3_000_000)
    return [row for shape in SIZES[size] for row in _case(*shape)]


def _case(n_prompts: int, group: int, n_visits: int, repetitions: int) -> list[Row]:
    rng = np.random.default_rng(0)
    count = np.full((n_prompts, n_visits), float(group))
    total = rng.binomial(group, 0.5, size=count.shape).astype(float)
    lag = np.tile(np.arange(n_visits, 0, -1.0), (n_prompts, 1))
    groups = Groups(reward=rng.integers(2, size=(n_prompts, group)).astype(float))
    visits = Visits.of_successes(lag, total, count)
    baseline = make_baseline("kae", bandwidth=10)
    n_bytes = groups.reward.nbytes + lag.nbytes + count.nbytes + total.nbytes
    source = np.zeros(n_bytes // 8)
    target = np.zeros_like(source)
    seconds = interleaved(
        {
            "kae values": lambda: baseline.values(groups, visits, step=n_visits),
            "NumPy pass": lambda: np.add(source, 1.0, out=target),
        },
        repetitions=repetitions,
    )
    case = f"{n_prompts:,} prompts, {group} completions, {n_visits} visits ({n_bytes / 1e6:.3g} MB read)"
    return [
        *(Row(case, name, "ms", estimate(1e3 * sample)) for name, sample in seconds.items()),
        Row(case, "kae values / NumPy pass", "ratio", ratio(*seconds.values()), at_most=5.0),
    ]


if __name__ == "__main__":
    show(CLAIM, run())
