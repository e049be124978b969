"""Every bandwidth selector of the library against the best fixed bandwidth for the truth."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kaestat import Groups, Visits
from kaestat.baselines import Kae
from kaestat.smoothing.kernels import Triangular
from kaestat.smoothing.selectors import SELECTORS, Fixed, Selector, make_selector
from kaestat.smoothing.selectors.base import FormulaSelector
from simulations.bandits.paths import value_paths
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, grid, ratio_of_means

N_PROMPTS, N_STEPS = 32, 41
SCORED = (20, 40)  # steps at which values are estimated
CANDIDATES = (
    1.0,
    1.5,
    2.0,
    3.0,
    4.0,
    6.0,
    8.0,
    11.0,
    15.0,
    20.0,
    28.0,
    40.0,
    80.0,
    math.inf,
)  # of the oracle, in steps


@dataclass(frozen=True)
class Chosen(FormulaSelector):
    """What another selector resolved to, so that it is asked once for both the bandwidth and the values."""

    pairs: tuple[tuple[np.ndarray | float, np.ndarray | float], ...]

    def resolve(self, visits, current_count, *, step, kernel):
        return list(self.pairs)


def simulate(cell: Cell, streams: Streams) -> Samples:
    group_size = cell["group_size"]
    value = value_paths(cell["path"], streams, N_STEPS, N_PROMPTS)
    value = np.broadcast_to(value, (len(streams), *value.shape[1:]))
    reward = (streams.uniform("rewards", N_STEPS, N_PROMPTS, group_size) < value[..., None]).astype(float)
    columns: dict[str, list[np.ndarray]] = {}
    for t in SCORED:
        groups = Groups(reward[:, t])
        visits = Visits.of(np.arange(t, 0, -1), np.moveaxis(reward[:, :t], 1, 2))
        for name in SELECTORS:
            pairs = make_selector(name).resolve(visits, groups.count, step=t, kernel=Triangular())
            columns.setdefault(f"{name}|mse", []).append(_squared_error(Chosen(tuple(pairs)), groups, visits, value, t))
            mean = sum(np.asarray(share) * bandwidth for bandwidth, share in pairs)
            chosen = np.broadcast_to(mean, groups.count.shape).mean(axis=(1, 2))
            columns.setdefault(f"{name}|bandwidth", []).append(chosen)
        for bandwidth in CANDIDATES:
            columns.setdefault(_fixed(bandwidth), []).append(_squared_error(Fixed(bandwidth), groups, visits, value, t))
            columns.setdefault(_risk(bandwidth), []).append(exact_risk(bandwidth, value[:, : t + 1], group_size))
    return {name: np.mean(per_step, axis=0) for name, per_step in columns.items()}


def _squared_error(selector: Selector, groups: Groups, visits: Visits, value: np.ndarray, t: int) -> np.ndarray:
    values = Kae(bandwidth=selector, cold_start=0.0).values(groups, visits, step=t)
    return ((values - value[:, t, :, None]) ** 2).mean(axis=(1, 2))


def exact_risk(bandwidth: float, value: np.ndarray, group_size: int) -> np.ndarray:
    """MSE of KAE with a fixed bandwidth given the value paths, mean over prompts, shape (R,).

    value (ndarray, shape (R, t + 1, P)): Up to the current step.
    """
    lag = np.arange(value.shape[1] - 1, -1.0, -1)
    weight = np.maximum(1 - lag / bandwidth, 0)
    count = np.append(np.full(len(lag) - 1, float(group_size)), group_size - 1.0)
    mass = weight * count
    if mass.sum() == 0:  # nothing but its own reward: the value is KAE's cold start, 0
        return (value[:, -1] ** 2).mean(axis=-1)
    mass, weight = mass / mass.sum(), weight / mass.sum()
    bias = np.einsum("t,rtp->rp", mass, value) - value[:, -1]
    variance = np.einsum("t,rtp->rp", weight * mass, value * (1 - value))
    return (bias**2 + variance).mean(axis=-1)


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """The oracle's bandwidth has the lowest exact risk; its regret ratio is 1, and MSEs are paired with its own."""
    best = min(CANDIDATES, key=lambda bandwidth: samples[_risk(bandwidth)].mean())
    oracle, risk = samples[_fixed(best)], samples[_risk(best)]
    estimates = [
        average("oracle|mse", oracle),
        average("oracle|exact_mse", risk),
        Estimate("bandwidth", best, 0.0, len(risk), "oracle"),
    ]
    for name in SELECTORS:
        mse = samples[f"{name}|mse"]
        estimates += [
            average(f"{name}|mse", mse),
            ratio_of_means(f"{name}|regret_ratio", mse, oracle),
            average(f"{name}|bandwidth", samples[f"{name}|bandwidth"]),
        ]
    return estimates


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """One row per selector and cell: ``regret_ratio`` with its error, ``bandwidth`` and the oracle's."""
    keys = ["path", "group_size", "method"]
    by_measure = {m: rows.set_index(keys)[["estimate", "mcse"]] for m, rows in summary.groupby("measure")}
    table = by_measure["regret_ratio"].set_axis(["regret_ratio", "mcse"], axis=1)
    bandwidth = by_measure["bandwidth"].set_axis(["bandwidth", "bandwidth_mcse"], axis=1)
    table = table.join(bandwidth).reset_index()
    oracle = bandwidth["bandwidth"].xs("oracle", level="method").rename("oracle_bandwidth")
    return table.join(oracle, on=["path", "group_size"])


def _fixed(bandwidth: float) -> str:
    return f"fixed at {bandwidth:g}|mse"


def _risk(bandwidth: float) -> str:
    return f"fixed at {bandwidth:g}|risk"


STUDY = Study(
    name="bandwidth_selectors",
    aims="How near each selector comes to the best fixed bandwidth, and which bandwidths it chooses.",
    mechanisms=f"{N_PROMPTS} prompts visited at each of {N_STEPS} steps; values static, walking or linear on the "
    f"logit; Bernoulli rewards; KAE with the triangular kernel at steps {SCORED[0]} and {SCORED[1]}.",
    estimands="Current values; oracle: the fixed bandwidth of lowest exact risk, one for both steps.",
    cells=grid(path=("static", "random_walk", "linear"), group_size=(1, 8)),
    replicates=40,
    shard=10,
    simulate=simulate,
    summarise=summarise,
    conclude=conclude,
)
