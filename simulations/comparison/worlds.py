"""Value error on simulated paths, and the gradient's noise where weights matter and where not."""

import numpy as np
import pandas as pd

from simulations.bandits.paths import PATHS, value_paths
from simulations.comparison.compared import NO_LEAVE_ONE_OUT, REWARDS_ALONE, baseline_of, needs_a_group
from simulations.harness import Streams
from simulations.studies import best_baselines
from simulations.studies.best_baselines import REGIMES, served

SEED, REPLICATES = 0, 12
N_PROMPTS, N_STEPS = 64, 30
GROUP_SIZES = (1, 8)
NOISE_SIZE = 4


def paths() -> pd.DataFrame:
    """``method, path, group_size, mse, se``: every path kind, from the second visit on; errors over replicates."""
    rows = []
    for kind in PATHS:
        for size in GROUP_SIZES:
            streams = Streams(SEED, f"comparison {kind}", range(REPLICATES))
            value = value_paths(kind, streams, N_STEPS, N_PROMPTS)
            reward = (streams.uniform("rewards", N_STEPS, N_PROMPTS, size) < value[..., None]).astype(float)
            for name in REWARDS_ALONE:
                if size > 1 or not needs_a_group(name):
                    error = ((served(baseline_of(name), reward) - value[..., None]) ** 2)[:, 1:].mean(axis=(1, 2, 3))
                    rows.append((name, kind, size, error.mean(), _error(error)))
    return pd.DataFrame(rows, columns=["method", "path", "group_size", "mse", "se"])


def noise() -> pd.DataFrame:
    """``method, regime, weighted, ratio, se``: noise relative to the least, at four completions, with and without."""
    rows = []
    for regime in REGIMES:
        streams = Streams(SEED, f"comparison {regime}", range(REPLICATES))
        world = best_baselines.drawn(REGIMES[regime], NOISE_SIZE, streams)
        least = world.noise(world.best)
        for name in REWARDS_ALONE:
            if name in NO_LEAVE_ONE_OUT:
                continue
            baseline = baseline_of(name).leave_one_out()
            for weighted in (False, True) if baseline.takes_weights else (False,):
                found = world.noise(served(baseline, world.reward, world.weight if weighted else None))
                ratio = found.mean() / least.mean()
                rows.append((name, regime, weighted, ratio, _error((found - ratio * least) / least.mean())))
    return pd.DataFrame(rows, columns=["method", "regime", "weighted", "ratio", "se"])


def _error(column: np.ndarray) -> float:
    return float(column.std(ddof=1) / len(column) ** 0.5)
