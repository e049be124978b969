"""Intervals of risk tables where few prompts carry an estimate: coverage and length, with and without their mechanism.

Only what each prompt contributes is simulated, for all replicates at once; the intervals are the package's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import expit

from kaestat.core.bootstrap import NORMAL_975, cluster_bootstrap, mean_with_interval
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average
from simulations.harness.performance import coverage
from simulations.harness.study import grid

LEVEL = 0.95
BANDWIDTH = 10.0  # of the triangular kernel
N_BOOT = 1000
SIGMA = 1.5  # of the logarithm of weights
METHODS = ("skewed", "percentile")
KEYS = ["case", "history"]


@dataclass(frozen=True)
class Case:
    """A run: logits of prompts are normal, and walk.

    center, spread, walk: Mean and standard deviation of the logits at first, and of their changes from step to step.
    weights: Of gradient noise: ``"none"`` for value MSE, log-normal ones for each ``"completion"`` or each
        ``"prompt"``.
    """

    prompts: int
    steps: int
    group_size: int
    center: float
    spread: float
    walk: float
    weights: str = "none"


CASES = {
    "value .97, 40 prompts": Case(40, 8, 8, 3.5, 1.0, 0.1),
    "value .99, 300 prompts": Case(300, 5, 4, 4.6, 1.0, 0.1),
    "value .03, 10 prompts": Case(10, 8, 8, -3.5, 1.0, 0.1),
    "value .5, 40 prompts": Case(40, 8, 8, 0.0, 1.5, 0.15),
    "weighted completions, 30 prompts": Case(30, 10, 4, 0.0, 1.5, 0.15, "completion"),
    "weighted prompts, 30 prompts": Case(30, 10, 4, 0.0, 1.5, 0.15, "prompt"),
    "weighted prompts, 100 prompts": Case(100, 6, 4, 0.0, 1.5, 0.15, "prompt"),
}


def rewards(case: Case, streams: Streams) -> np.ndarray:
    """0/1 rewards, shape (R, P, T, G)."""
    moves = streams.normal("logits", case.prompts, case.steps) * np.r_[case.spread, [case.walk] * (case.steps - 1)]
    rate = expit(case.center + np.cumsum(moves, axis=2)).astype(np.float32)
    return streams.uniform("rewards", case.prompts, case.steps, case.group_size) < rate[..., None]


def weights(case: Case, streams: Streams) -> np.ndarray | float:
    """Weight of each completion, broadcastable to `rewards`."""
    if case.weights == "none":
        return 1.0
    shape = (case.steps, case.group_size) if case.weights == "completion" else (1, 1)
    return np.asarray(np.exp(SIGMA * streams.normal("weights", case.prompts, *shape)))


def contributions(reward: np.ndarray, weight: np.ndarray | float, *, history: bool, absolute: bool) -> np.ndarray:
    """Mean risk of each prompt over its visits but the first, shape (R, P).

    reward: ndarray of bool, shape (R, P, T, G).
    history: The value is the kernel mean of earlier visits and of the group's other completions; or of the latter
        alone.
    absolute: Subtract the reward variance.
    """
    *_, steps, size = reward.shape
    total = reward.sum(axis=-1, dtype=float)
    risk = np.empty((*total.shape[:2], steps - 1))
    weight = np.broadcast_to(weight, reward.shape)
    for step in range(1, steps):
        kernel = np.clip(1 - np.arange(step, 0, -1) / BANDWIDTH, 0, None) * history
        now, own = total[..., step, None], reward[..., step, :]
        value = ((total[..., :step] @ kernel)[..., None] + now - own) / (kernel.sum() * size + size - 1)
        risk[..., step - 1] = (weight[..., step, :] * (own - value) ** 2).mean(axis=-1)
        if absolute:
            risk[..., step - 1] -= (now * (size - now))[..., 0] / (size * (size - 1))
    return np.asarray(risk.mean(axis=-1))


def percentile_interval(samples: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The interval that knows nothing of skewness: percentiles as wide as Student's (Hesterberg, 2015)."""
    from scipy.special import stdtrit

    n, mean = len(samples), samples.mean(axis=0)
    factor = np.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.975) / NORMAL_975
    low, high = (mean + factor * (end - mean) for end in np.quantile(draws, [0.025, 0.975], axis=0))
    return low, high


def simulate(cell: Cell, streams: Streams) -> Samples:
    case = CASES[cell["case"]]
    absolute = case.weights == "none"
    risk = contributions(rewards(case, streams), weights(case, streams), history=cell["history"], absolute=absolute)
    draws = cluster_bootstrap(risk.T, n_boot=N_BOOT, seed=0)
    mean, _, low, high = mean_with_interval(risk.T, draws)
    plain = percentile_interval(risk.T, draws)
    return {
        "mean": mean,
        "skewed|low": low,
        "skewed|high": high,
        "percentile|low": plain[0],
        "percentile|high": plain[1],
    }


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Coverage of the mean over all replicates; misses on either side; median length as a multiple of percentiles'."""
    truth = float(samples["mean"].mean())
    ends = {name: (samples[f"{name}|low"], samples[f"{name}|high"]) for name in METHODS}
    plain = float(np.median(np.subtract(*ends["percentile"][::-1])))
    rows = []
    for name, (low, high) in ends.items():
        length = float(np.median(high - low)) / plain
        rows += [
            coverage(f"{name}|coverage", low, high, truth),
            average(f"{name}|too_low", (high < truth).astype(float)),
            average(f"{name}|too_high", (low > truth).astype(float)),
            Estimate("median_length", length, _median_error(high - low) / plain, len(low), name),
        ]
    return rows


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """One row per case and interval: ``coverage, coverage_mcse, too_low, too_high, median_length``, with errors."""
    keys = [*KEYS, "method"]
    parts = [
        summary[summary["measure"] == measure]
        .set_index(keys)[["estimate", "mcse"]]
        .set_axis([measure, f"{measure}_mcse"], axis=1)
        for measure in STUDY.measures
    ]
    return parts[0].join(parts[1:]).reset_index()


def _median_error(column: np.ndarray) -> float:
    """Half the distance of the order statistics one binomial standard deviation from the middle."""
    low, high = np.quantile(column, 0.5 + np.array([-0.5, 0.5]) / np.sqrt(len(column)))
    return float(high - low) / 2


STUDY = Study(
    name="interval_skewed",
    aims="Whether intervals of risk tables cover where few prompts carry an estimate, and what that costs in length.",
    mechanisms="Runs of 0/1 rewards whose prompts have normal logits that walk. Each prompt contributes its mean risk "
    "over all visits but the first, under GRPO's leave-one-out mean or with a kernel mean over earlier visits "
    f"(triangular, bandwidth {BANDWIDTH:g}). Gradient noise has log-normal weights (sigma {SIGMA:g}).",
    estimands="The mean risk over such runs.",
    methods=METHODS,
    measures=("coverage", "too_low", "too_high", "median_length"),
    cells=grid(case=tuple(CASES), history=(False, True)),
    common=("history",),
    replicates=8000,
    shard=500,
    simulate=simulate,
    summarise=summarise,
    conclude=conclude,
)
