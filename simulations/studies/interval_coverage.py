"""Confidence intervals for the current value: coverage and length, where their assumptions hold and where not."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from kaestat import Groups, Visits
from kaestat.inference import KINDS, value_interval
from kaestat.inference.interval import DRIFTING
from kaestat.theory import optimal_integer_bandwidth
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average
from simulations.harness.performance import proportion
from simulations.harness.study import grid

LEVEL = 0.95
LIPSCHITZ = 0.001  # the value's change per step at worst, and the walk's typical change
CURRENT = 0.45  # the value now, so that 0/1 rewards have a variance near 1/4 throughout
WIDEST = 2.0  # times the best bandwidth


def best_bandwidth(group_size: int) -> int:
    """Steps; the best for the worst drift."""
    return optimal_integer_bandwidth(lipschitz=LIPSCHITZ, noise_variance=0.25 / group_size)


def value_path(kind: str, streams: Streams, reach: int) -> np.ndarray:
    """Values at lags reach..0, shape (R or 1, reach + 1)."""
    lag = np.arange(reach, -1.0, -1)
    if kind == "static":
        return np.full((1, reach + 1), CURRENT)
    if kind == "worst_case":
        return (CURRENT + LIPSCHITZ * lag)[None]
    walk = np.cumsum(LIPSCHITZ / (CURRENT * (1 - CURRENT)) * streams.normal("walk", reach + 1), axis=1)
    return expit(logit(CURRENT) + walk)


def simulate(cell: Cell, streams: Streams) -> Samples:
    group_size, best = cell["group_size"], best_bandwidth(cell["group_size"])
    reach = math.ceil(WIDEST * best)
    value = value_path(cell["path"], streams, reach)
    reward = streams.uniform("rewards", reach + 1, group_size) < value[..., None].astype(np.float32)
    total = reward[:, :-1].sum(axis=-1, dtype=float)[:, None, :]
    lag = np.arange(reach, 0.0, -1)[None]
    visits = Visits(lag=lag, count=np.full_like(lag, float(group_size)), total=total, total_sq=total)
    groups, truth = Groups(reward[:, -1:].astype(float)), value[:, -1]
    columns = {}
    for kind in KINDS:
        drift = LIPSCHITZ if cell["path"] != "static" else 0.0
        interval = value_interval(
            groups,
            visits,
            step=reach,
            bandwidth=cell["bandwidth"] * best,
            kind=kind,
            level=LEVEL,
            lipschitz=drift if kind in DRIFTING else None,
        )
        low, high = interval.low[:, 0], interval.high[:, 0]
        columns[f"{kind}|coverage"] = ((low <= truth) & (truth <= high)).astype(float)
        columns[f"{kind}|length"] = high - low
    return columns


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    return [
        proportion(name, column) if name.endswith("coverage") else average(name, column)
        for name, column in samples.items()
    ]


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """One row per interval: ``coverage, coverage_mcse, length, length_mcse``."""
    keys = ["path", "group_size", "bandwidth", "method"]
    parts = [
        summary[summary["measure"] == measure]
        .set_index(keys)[["estimate", "mcse"]]
        .set_axis([measure, f"{measure}_mcse"], axis=1)
        for measure in ("coverage", "length")
    ]
    return parts[0].join(parts[1]).reset_index()


STUDY = Study(
    name="interval_coverage",
    aims="Honest intervals cover at worst-case drift, naive ones do not; what the honesty costs in length.",
    mechanisms="One prompt, visited at every step, 0/1 rewards. Value falling by "
    f"{LIPSCHITZ:g} a step (worst case), walking on the logit with that standard deviation in values, or static. "
    "All but the normal and robust intervals get that drift as their Lipschitz constant (0 if static); for the "
    "walk it bounds nothing. Bandwidths are multiples of the best integer one for the worst case.",
    estimands="The prompt's current value.",
    methods=KINDS,
    measures=("coverage", "length"),
    cells=grid(path=("worst_case", "random_walk", "static"), group_size=(1, 8), bandwidth=(0.5, 1.0, WIDEST)),
    common=("bandwidth",),
    replicates=2000,
    shard=500,
    simulate=simulate,
    summarise=summarise,
    conclude=conclude,
)
