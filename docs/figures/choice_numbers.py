"""The numbers behind "Choose a baseline": value MSE of the methods in simulated runs, and in a real one.

``PYTHONPATH=. python docs/figures/choice_numbers.py``, in a checkout, writes ``choice_curves.csv`` and
``choice_map.csv`` beside this file in seconds, and ``choice_real_run.csv`` where ``KAESTAT_DATA`` names the folder
of the real run's log. tests/docs checks that the files are what it writes.

In the simulated runs a prompt's success rate starts as in a real run and its logit is a Gaussian random walk; every
prompt is seen once a step with G completions. Errors are against the true value after V earlier visits.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from kaestat import Groups, RewardLog, Visits, make_baseline, read_log, value_risk
from kaestat.baselines.registry import FIXED_PARAMETERS, METHODS
from kaestat.core.storage import write_atomically
from simulations.bandits.paths import value_paths
from simulations.harness import Streams

FOLDER = Path(__file__).parent
REAL_LOG = "acc_step_500_dev.json"

N_PROMPTS, N_REPLICATES = 64, 60
GROUP_SIZE, PAST, DRIFT = 8, 16, 0.13  # where another number is not on the axis; the drift is a real run's per epoch
COMPARED = ("reinforce++", "rloo", "james_stein", "spo", "kalman", "kae", "kae_eb")
GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64)
PASTS = (0, 1, 2, 4, 8, 16, 32)
DRIFTS = (0.0, 0.03, 0.06, 0.13, 0.25, 0.5, 1.0, 2.0)
WIDTHS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0)  # at 1 the past has no weight: the group mean


def simulate(drift: float, past: int, group_size: int) -> tuple[np.ndarray, np.ndarray]:
    """True values after ``past`` visits, shape (R, P), and rewards of all visits, shape (R, V + 1, P, G)."""
    streams = Streams(0, "choice", range(N_REPLICATES))
    value = value_paths("random_walk", streams, past + 1, N_PROMPTS, scale=drift)
    drawn = streams.uniform("rewards", past + 1, N_PROMPTS, group_size)
    return value[:, -1], (drawn < value[..., None]).astype(float)


def squared_error(method: str, value: np.ndarray, reward: np.ndarray, **params: float) -> np.ndarray:
    """Mean squared error of a method's values at the last visit, for each replicate, shape (R,)."""
    baseline = make_baseline(method, **(FIXED_PARAMETERS.get(method, {}) | params)).leave_one_out()
    past = reward.shape[1] - 1
    visits = Visits.of(np.arange(past, 0, -1), np.moveaxis(reward[:, :-1], 1, 2))
    values = baseline.values(Groups(reward[:, -1]), visits, step=past)
    return ((values - value[..., None]) ** 2).mean(axis=(1, 2))


def curves() -> pd.DataFrame:
    """``axis, at, method, mse, se``: one of group size, number of past visits and drift varies at a time."""
    rows = []
    for axis, at, drift, past, group_size in _settings():
        value, reward = simulate(drift, past, group_size)
        for method in COMPARED:
            if group_size == 1 and method in ("rloo", "james_stein"):
                continue  # nothing is left of the group
            error = squared_error(method, value, reward)
            rows.append((axis, at, method, error.mean(), error.std(ddof=1) / len(error) ** 0.5))
    return pd.DataFrame(rows, columns=["axis", "at", "method", "mse", "se"])


def _settings() -> Iterator[tuple[str, float, float, int, int]]:
    yield from (("group_size", size, DRIFT, PAST, size) for size in GROUP_SIZES)
    yield from (("past", past, DRIFT, past, GROUP_SIZE) for past in PASTS)
    yield from (("drift", drift, drift, PAST, GROUP_SIZE) for drift in DRIFTS)


def choice_map() -> pd.DataFrame:
    """``group_size, drift``, and value MSE relative to the leave-one-out group mean's.

    ``default`` is KAE at bandwidth 10; ``best`` KAE at the best of some bandwidths, ``bandwidth``; ``kae_eb`` ours.
    """
    rows = []
    for drift in DRIFTS:
        for size in GROUP_SIZES[1:]:
            value, reward = simulate(drift, PAST, size)
            group_mean = squared_error("rloo", value, reward).mean()
            error = {width: squared_error("kae", value, reward, bandwidth=width).mean() for width in WIDTHS}
            best = min(error, key=error.__getitem__)
            shrunk = squared_error("kae_eb", value, reward).mean()
            ratios = (error[10.0] / group_mean, error[best] / group_mean, best, shrunk / group_mean)
            rows.append((size, drift, *ratios))
    return pd.DataFrame(rows, columns=["group_size", "drift", "default", "best", "bandwidth", "kae_eb"])


def real_run(log: RewardLog) -> pd.DataFrame:
    """``method, mse, se, ratio_to_grpo`` of every method that needs rewards alone, the best first.

    ``kae`` and ``kae_eb`` are at their fixed bandwidths.
    """
    names = [name for name, method in METHODS.items() if method.needs is None]
    fixed = {name: f"{name}:bandwidth={params['bandwidth']:g}" for name, params in FIXED_PARAMETERS.items()}
    table = value_risk(log, [fixed.get(name, name) for name in names], n_boot=0).assign(method=names)
    table = table.sort_values("mse", kind="stable")
    return table[["method", "mse", "se", "vs_grpo"]].rename(columns={"vs_grpo": "ratio_to_grpo"})


def write(frame: pd.DataFrame, name: str) -> None:
    """Write a table beside this file, to six digits."""
    write_atomically(FOLDER / f"{name}.csv", frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


if __name__ == "__main__":
    write(curves(), "choice_curves")
    write(choice_map(), "choice_map")
    if "KAESTAT_DATA" in os.environ:
        write(real_run(read_log(Path(os.environ["KAESTAT_DATA"]) / REAL_LOG)), "choice_real_run")
