"""The numbers of the methods' figures: bias and variance of each method's value, on six kinds of paths.

``PYTHONPATH=. python docs/figures/method_numbers.py`` adds to ``method_spread.csv`` beside this file what methods it
lacks, seconds for each; the site's build draws the figures of their pages. ``--all`` computes all anew.

Worlds as in `simulations.comparison`: 30 visits of every prompt, values of a path. Rewards of each world are drawn
again and again, so that a value's mean and its variance over rewards are known: bias is what the mean misses.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from kaestat.core.storage import write_atomically
from simulations.bandits.paths import PATHS, value_paths
from simulations.comparison.compared import REWARDS_ALONE, baseline_of, needs_a_group
from simulations.harness import Streams
from simulations.studies.best_baselines import served

FOLDER = Path(__file__).parent
SEED, N_WORLDS, N_DRAWS, N_PROMPTS, N_STEPS = 0, 6, 12, 32, 30
GROUP_SIZES = (1, 8)


def spread(name: str) -> Iterator[tuple[object, ...]]:
    """A row for each kind of path and group size; errors over worlds."""
    for kind in PATHS:
        worlds = value_paths(kind, Streams(SEED, f"spread {kind}", range(N_WORLDS)), N_STEPS, N_PROMPTS)
        value = np.repeat(worlds, N_DRAWS, axis=0)[..., None]
        for size in GROUP_SIZES:
            if size == 1 and needs_a_group(name):
                continue
            draws = Streams(SEED, f"spread {kind} rewards", range(N_WORLDS * N_DRAWS))
            reward = (draws.uniform("rewards", N_STEPS, N_PROMPTS, size) < value).astype(float)
            parts = decomposed(served(baseline_of(name), reward) - value, N_WORLDS)
            row = [each for part in parts for each in (part.mean(), part.std(ddof=1) / N_WORLDS**0.5)]
            yield (name, kind, size, *row)


def decomposed(error: np.ndarray, n_worlds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squared bias, variance and MSE in each world, from the second step on.

    error (ndarray, shape (n_worlds * draws, T, P, G)): Draws of a world side by side.
    Returns bias2, variance, mse (ndarray, shape (n_worlds,)): The squared bias has the variance of its own mean taken
        off, so it is without bias and may be negative.
    """
    drawn = error[:, 1:].reshape(n_worlds, -1, *error[:, 1:].shape[1:])
    variance = drawn.var(axis=1, ddof=1)
    bias2 = drawn.mean(axis=1) ** 2 - variance / drawn.shape[1]
    return tuple(part.reshape(n_worlds, -1).mean(axis=1) for part in (bias2, variance, drawn**2))


def main(everything: bool) -> None:
    """Complete the table."""
    path = FOLDER / "method_spread.csv"
    columns = ["method", "path", "group_size", "bias2", "bias2_se", "variance", "variance_se", "mse", "mse_se"]
    known = pd.read_csv(path) if path.exists() and not everything else pd.DataFrame(columns=columns)
    known = known[known["method"].isin(REWARDS_ALONE)]
    for name in REWARDS_ALONE:
        if name not in set(known["method"]):
            rows = pd.DataFrame(list(spread(name)), columns=columns)
            known = rows if known.empty else pd.concat([known, rows])
            write_atomically(path, known.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
            print(f"{name}: computed")


if __name__ == "__main__":
    main("--all" in sys.argv[1:])
