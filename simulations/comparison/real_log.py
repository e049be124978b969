"""Value error on a real log at fewer completions than it has: draw some of each visit's, score against the rest."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from kaestat import read_log, value_risk
from simulations.comparison.compared import REWARDS_ALONE, baseline_of, needs_a_group, specified
from simulations.studies.best_baselines import served

GROUP, N_VISITS, DRAWS = 8, 44, 4
THINNED = (1, 2, 4)
FIRST = 5  # visits after the first
FOLDS = 10  # groups of prompts left out in turn
BOOT, SEED = 200, 0
COLUMNS = ["method", "group_size", "visits", "mse", "se"]


def accuracies(path: Path) -> np.ndarray:
    """Successes among the eight completions of the first 44 visits of each prompt, shape (P, V)."""
    content = json.loads(path.read_text())
    return np.array([[round(GROUP * rate) for rate in rates[:N_VISITS]] for rates in content.values()])


def thinned(successes: np.ndarray, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rewards of ``size`` completions drawn from each group, and successes among the rest.

    Shapes (D, V, P, G) and (D, V, P): one row of draws for each of `DRAWS`.
    """
    rng = np.random.default_rng([seed, size])
    rewards = (np.arange(GROUP) < successes.T[..., None]).astype(float)  # (V, P, 8)
    mixed = rng.permuted(np.broadcast_to(rewards, (DRAWS, *rewards.shape)).copy(), axis=-1)
    return mixed[..., :size], mixed[..., size:].sum(axis=-1)


def squared_errors(name: str, reward: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Unbiased squared errors of the values against the mean of the rest, (D, V, P)."""
    others = GROUP - reward.shape[-1]
    mean = rest / others
    noise = mean * (1 - mean) / (others - 1)
    error = (served(baseline_of(name), reward) - mean[..., None]) ** 2
    return error.mean(axis=-1) - noise


def of_thinned(name: str, successes: np.ndarray, size: int) -> Iterator[tuple[object, ...]]:
    """Rows for a method at ``size`` completions a visit: over all visits but the first, and the first five of these.

    Errors are over prompts; where the method pools prompts, from leaving out each of ten groups of them.
    """
    reward, rest = thinned(successes, size, SEED)
    parts = {"all": slice(1, None), f"1-{FIRST}": slice(1, 1 + FIRST)}
    whole = squared_errors(name, reward, rest)
    again = []
    if baseline_of(name).pools_prompts:
        fold = np.random.default_rng(SEED).permutation(successes.shape[0]) % FOLDS
        again = [squared_errors(name, reward[:, :, fold != k], rest[:, :, fold != k]) for k in range(FOLDS)]
    for visits, part in parts.items():
        of_prompts = whole[:, part].mean(axis=(0, 1))
        se = of_prompts.std(ddof=1) / len(of_prompts) ** 0.5
        if again:
            left = np.array([errors[:, part].mean() for errors in again])
            se = ((FOLDS - 1) / FOLDS * ((left - left.mean()) ** 2).sum()) ** 0.5
        yield name, size, visits, of_prompts.mean(), se


def of_whole(path: Path) -> Iterator[tuple[object, ...]]:
    """Rows at eight completions a visit, scored without a rest (`kaestat.value_risk`)."""
    log = read_log(path)
    for visits, last in (("all", N_VISITS), (f"1-{FIRST}", 1 + FIRST)):
        frame = log.frame[log.frame["step"] < last]
        part = type(log)(np.array(log.prompts)[frame["prompt"]], frame["step"], frame["reward"])
        table = value_risk(part, list(map(specified, REWARDS_ALONE)), n_boot=BOOT, seed=SEED)
        for name, mse, se in zip(REWARDS_ALONE, table["mse"], table["se"], strict=True):
            yield name, GROUP, visits, mse, se


def real_log(path: Path) -> pd.DataFrame:
    """``method, group_size, visits, mse, se`` of every method at 1, 2, 4 and 8 completions a visit."""
    successes = accuracies(path)
    rows = [
        row
        for size in THINNED
        for name in REWARDS_ALONE
        if size > 1 or not needs_a_group(name)
        for row in of_thinned(name, successes, size)
    ]
    return pd.DataFrame([*rows, *of_whole(path)], columns=COLUMNS)
