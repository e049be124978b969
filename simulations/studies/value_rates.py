"""Theorem 1 and Corollary 1: bias, variance and MSE of the value estimate along a drifting path."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kaestat import Groups, Visits, make_baseline
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, variance
from simulations.harness.study import grid

GROUP_SIZE = 2
DRIFT = 0.25  # V falls off into the past as DRIFT * log(i / t): the 1/i schedule's worst case
VALUE = 0.6


def path(step: int) -> np.ndarray:
    """V_t for t = 0..step, shape (step + 1,); at least 0.1, which only the far past reaches."""
    t = np.maximum(np.arange(step + 1), 1)
    return np.maximum(VALUE - DRIFT * np.log(step / t), 0.1)


def simulate(cell: Cell, streams: Streams) -> Samples:
    step = cell["step"]
    value = path(step)
    reward = streams.uniform("rewards", step + 1, GROUP_SIZE) < value[:, None]
    total = reward[:, :step].sum(axis=-1, dtype=np.float64)[:, None, :]  # one prompt: (R, 1, V)
    lag = np.arange(step, 0, -1, dtype=float)
    visits = Visits(
        lag=np.broadcast_to(lag, total.shape), count=np.full_like(total, GROUP_SIZE), total=total, total_sq=total
    )
    groups = Groups(reward[:, None, step].astype(float))
    h = cell["h"] if cell["h"] is not None else cell["c"] * (GROUP_SIZE * step) ** (-1 / 3)
    columns = {}
    for name, baseline in (("kae", make_baseline("kae", bandwidth=h * step)), ("grpo", make_baseline("rloo"))):
        error = baseline.values(groups, visits, step=step)[:, 0, 0] - value[step]
        columns[f"{name}|error"] = error
    return columns


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    estimates = []
    for name, error in samples.items():
        method = name.partition("|")[0]
        estimates += [
            average(f"{method}|bias", error),
            variance(f"{method}|variance", error),
            average(f"{method}|mse", error**2),
        ]
    return estimates


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    return summary


STUDY = Study(
    name="value_rates",
    aims="Bias O(h), variance O(1/(N h)), MSE O(N^(-2/3)) at h ~ N^(-1/3); GRPO does not improve with N.",
    mechanisms="One prompt, sampled at every step; value drifting as under a 1/i learning rate.",
    estimands="The prompt's current value.",
    methods=("kae", "grpo"),
    measures=("bias", "variance", "mse"),
    cells=grid(step=(400,), h=(0.05, 0.1, 0.2, 0.4), c=(None,)) + grid(step=(100, 400, 1600), h=(None,), c=(1.0,)),
    replicates=1000,
    shard=250,
    simulate=simulate,
    summarise=summarise,
)
