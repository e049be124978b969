"""The numbers of "outside_value": what a value from outside is worth, by how good it is.

``PYTHONPATH=. python docs/figures/outside_value_numbers.py``, in a checkout, writes ``outside_value.csv`` beside this
file within a minute. tests/docs checks that the file is what it writes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from kaestat import make_baseline
from kaestat.core.storage import write_atomically
from simulations.bandits.paths import value_paths
from simulations.harness import Streams
from simulations.studies.best_baselines import served

FOLDER = Path(__file__).parent
PATH, N_STEPS, N_PROMPTS, REPLICATES, SEED = "random_walk", 12, 64, 40, 0
SIZES = (1, 2, 4)
NOISES = (0.0, 0.1, 0.2, 0.4)  # standard deviation of the value's error, drawn once for each prompt
FIXED = {"bandwidth": 20.0}


def computed() -> pd.DataFrame:
    """``baseline, noise, group_size, visits, mse, se``; errors over replicates."""
    rows = []
    streams = Streams(SEED, "outside value", range(REPLICATES))
    value = value_paths(PATH, streams, N_STEPS, N_PROMPTS)
    error = np.random.default_rng(SEED).normal(size=(REPLICATES, 1, N_PROMPTS))
    for size in SIZES:
        reward = (streams.uniform(f"rewards {size}", N_STEPS, N_PROMPTS, size) < value[..., None]).astype(float)
        values = {("kae_eb", np.nan): served(make_baseline("kae_eb", **FIXED), reward)}
        if size > 1:
            values["rloo", np.nan] = served(make_baseline("rloo"), reward)
        for noise in NOISES:
            outside = value - 0.1 + noise * error
            values["outside_value", noise] = along(outside, reward)
        for (name, noise), found in values.items():
            squares = ((found - value[..., None]) ** 2).mean(axis=(2, 3))
            for visits, part in (("first", slice(0, 1)), ("2-12", slice(1, None))):
                of_each = squares[:, part].mean(axis=1)
                se = of_each.std(ddof=1) / len(of_each) ** 0.5
                rows.append((name, noise, size, visits, of_each.mean(), se))
    return pd.DataFrame(rows, columns=["baseline", "noise", "group_size", "visits", "mse", "se"])


def along(outside: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """Values of every step of a run, with the value from outside that is current there."""
    found = np.empty_like(reward)
    for step in range(N_STEPS):
        baseline = make_baseline("outside_value", outside=outside[:, step], **FIXED)
        found[:, step] = served(baseline, reward[:, : step + 1])[:, step]
    return found


if __name__ == "__main__":
    text = computed().to_csv(index=False, float_format="%.5g", lineterminator="\n")
    write_atomically(FOLDER / "outside_value.csv", text)
