"""Methods with a history where values do more than walk, against the filter that knows each regime's parameters."""

from functools import cache

import numpy as np
import pandas as pd

from kaestat import make_baseline
from kaestat.baselines import Baseline
from kaestat.baselines.registry import parse_method
from simulations.bandits.regimes import REGIMES, World, world
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, grid, ratio_of_means
from simulations.studies.best_baselines import served

METHODS = ("bayes_filter", "kae_eb", "kae")
GROUP_SIZES = (1, 2, 8)
IN_TURNS, BATCHES, SMALL_GROUPS = 40, 4, (1, 2)  # prompts, of which each step has a quarter, and their completions
EARLY, TURNS = "_early", "_in_turns"  # measures of the first half of the visits, and of prompts in turns


@cache
def baseline(method: str) -> Baseline:
    """The baseline of a specification."""
    name, params = parse_method(method)
    return make_baseline(name, **params).leave_one_out()


def squared_errors(estimator: Baseline, made: World, reward: np.ndarray, batches: int = 1) -> np.ndarray:
    """Mean squared value error of each replicate at each visit, (R, T); see `served`.

    reward (ndarray, shape (R, T, P, G)): In place of the simulated ones, of the first P prompts.
    """
    values = served(estimator, reward, batches=batches, steps=batches * made.step)
    return ((values - made.value[:, :, : reward.shape[2], None]) ** 2).mean(axis=(2, 3))


def simulate(cell: Cell, streams: Streams) -> Samples:
    made = world(cell["regime"], cell["group_size"], streams)
    known = ((made.known - made.value[..., None]) ** 2).mean(axis=-1)
    columns = scores("known parameters", known.mean(axis=-1))
    runs = [(method, made.reward, "") for method in METHODS]
    if cell["group_size"] in SMALL_GROUPS:
        columns |= scores("known parameters", known[..., :IN_TURNS].mean(axis=-1), TURNS)
        runs += [(method, made.reward[:, :, :IN_TURNS], TURNS) for method in METHODS]
    for method, reward, shape in runs:
        columns |= scores(method, squared_errors(baseline(method), made, reward, BATCHES if shape else 1), shape)
    return columns


def scores(method: str, errors: np.ndarray, shape: str = "") -> dict[str, np.ndarray]:
    """Means of errors at each visit, (R, T), over the second half and over the first half but its first visit."""
    half = max(1, errors.shape[1] // 2)
    columns = {f"{method}|mse{shape}": errors[:, half:].mean(axis=1)}
    return columns | ({f"{method}|mse{shape}{EARLY}": errors[:, 1:half].mean(axis=1)} if half > 1 else {})


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Every method's error and its ratio to that of the known filter."""
    estimates = []
    for name, column in samples.items():
        method, measure = name.split("|")
        estimates.append(average(name, column))
        if method != "known parameters":
            ratio = f"{method}|{measure.replace('mse', 'ratio_to_known')}"
            estimates.append(ratio_of_means(ratio, column, samples[f"known parameters|{measure}"]))
    return estimates


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """One row per measure and method: the largest and the mean ratio to the known filter, the two states left out."""
    told = summary["measure"].str.startswith("ratio_to_known") & (summary["regime"] != "two states")
    ratio = summary[told].groupby(["measure", "method"])["estimate"]
    frame = pd.DataFrame({"max_ratio_to_known": ratio.max(), "mean_ratio_to_known": ratio.mean()})
    return frame.reset_index().sort_values(["measure", "max_ratio_to_known"], ignore_index=True)


STUDY = Study(
    name="regimes",
    aims="How far methods are from what can be known where values do not merely walk.",
    mechanisms="64 prompts, all visited together, and the first 40 of them 10 at a step; walks, jumps, a shock to "
    "all, drifts of each prompt's own, three "
    "visits with and without dead prompts, continuous rewards, uneven gaps, two states.",
    estimands="Each prompt's current value, over the second half of the visits (from the second on, of three), and "
    "over the first half but its first visit.",
    cells=grid(regime=tuple(REGIMES), group_size=GROUP_SIZES),
    replicates=32,
    shard=16,
    simulate=simulate,
    summarise=summarise,
    conclude=conclude,
)
