"""Confidence intervals for the current value from few visits and for rare successes: coverage and length."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kaestat import Groups, Visits
from kaestat.inference import KINDS, value_interval
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average
from simulations.harness.performance import proportion
from simulations.harness.study import grid

LEVEL = 0.95
DRIFT = 0.01  # the value's fall per step on the falling path, which the intervals take
KEYS = ["path", "value", "group_size", "visits", "bandwidth"]


def simulate(cell: Cell, streams: Streams) -> Samples:
    group_size, depth = cell["group_size"], cell["visits"]
    drift = DRIFT if cell["path"] == "falling" else 0.0
    lag = np.arange(depth, -1.0, -1)
    value = (cell["value"] + drift * lag)[:, None].astype(np.float32)
    reward = (streams.uniform("rewards", depth + 1, group_size) < value).astype(float)
    total = reward[:, None, :-1].sum(axis=-1)
    past = lag[None, :-1]
    visits = Visits(lag=past, count=np.full_like(past, float(group_size)), total=total, total_sq=total)
    columns = {}
    for kind in KINDS:
        interval = value_interval(
            Groups(reward[:, -1:]),
            visits,
            step=depth,
            bandwidth=cell["bandwidth"],
            kind=kind,
            level=LEVEL,
            lipschitz=drift,
        )
        low, high = interval.low[:, 0], interval.high[:, 0]
        columns[f"{kind}|coverage"] = ((low <= cell["value"]) & (cell["value"] <= high)).astype(float)
        columns[f"{kind}|length"] = high - low
        columns[f"{kind}|effective_size"] = np.broadcast_to(interval.effective_size[:, 0], low.shape)
    return columns


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    return [
        proportion(name, column) if name.endswith("coverage") else average(name, column)
        for name, column in samples.items()
    ]


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """One row per interval: ``coverage, coverage_mcse, length, length_mcse, effective_size``."""
    keys = [*KEYS, "method"]
    parts = [
        summary[summary["measure"] == measure]
        .set_index(keys)[["estimate", "mcse"]]
        .set_axis([measure, f"{measure}_mcse"], axis=1)
        for measure in ("coverage", "length", "effective_size")
    ]
    return parts[0].join(parts[1:]).drop(columns="effective_size_mcse").reset_index()


STUDY = Study(
    name="interval_few_visits",
    aims="Which intervals cover with few visits and rare successes, and how long they are.",
    mechanisms="One prompt, visited at each of the last 4 or 12 steps and now, 0/1 rewards, triangular kernel. The "
    f"value is constant, or falls by {DRIFT:g} a step to where it is now; the "
    "intervals take that drift.",
    estimands="The prompt's current value.",
    methods=KINDS,
    measures=("coverage", "length", "effective_size"),
    cells=grid(
        path=("constant", "falling"),
        value=(0.05, 0.2, 0.5),
        group_size=(1, 2, 8),
        visits=(4, 12),
        bandwidth=(5.0, 10.0, 100.0),
    ),
    common=("bandwidth",),
    replicates=1000,
    shard=500,
    simulate=simulate,
    summarise=summarise,
    conclude=conclude,
)
