"""Every method of the library against each other, and against the best that any estimator can do."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from kaestat import Groups, Visits, make_baseline, methods
from kaestat.baselines import Baseline
from kaestat.baselines.registry import FIXED_PARAMETERS, METHODS
from simulations.bandits.bayes_filter import BayesFilter
from simulations.bandits.paths import PATHS, START_MEAN, START_WITHIN, value_paths
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, ratio_of_means
from simulations.harness.study import grid

N_PROMPTS, N_STEPS, FIRST_SCORED = 64, 30, 1
STEP_SD = 0.13


@cache
def compared() -> dict[str, Baseline]:
    """Baselines by name, kae and kae_eb at fixed bandwidths; GRPO's family and REINFORCE++ leave-one-out.

    Only those that need rewards alone and estimate a mean. Names that share a value (grpo, rloo, ...) appear once.
    """
    return {
        name: make_baseline(name, **FIXED_PARAMETERS.get(name, {})).leave_one_out()
        for name, method in METHODS.items()
        if method.needs is None and method.default.estimates_mean and not method.same_value_as
    }


def squared_errors(baseline: Baseline, reward: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Mean squared value error of each replicate over steps, prompts and completions, shape (R,)."""
    carry, state, errors = baseline.initial_carry(), None, []
    for t in range(reward.shape[1]):
        groups = Groups(reward[:, t])
        visits = replace(Visits.of(np.arange(t, 0, -1), np.moveaxis(reward[:, :t], 1, 2)), state=state)
        served = baseline.serve(groups, visits, step=t, carry=carry)
        carry, state = served.carry, served.state
        if t >= FIRST_SCORED:
            error = served.values - value[:, t, :, None]
            errors.append((error**2).mean(axis=(1, 2)))
    return np.mean(errors, axis=0)


def simulate(cell: Cell, streams: Streams) -> Samples:
    value = value_paths(cell["path"], streams, N_STEPS, N_PROMPTS, scale=STEP_SD)
    drawn = streams.uniform("rewards", N_STEPS, N_PROMPTS, cell["group_size"])
    reward = (drawn < value[..., None]).astype(float)
    columns = {
        f"{name}|mse": squared_errors(baseline, reward, value)
        for name, baseline in compared().items()
        if cell["group_size"] > 1 or baseline.unit == "prompt" or baseline.horizon > 0  # group means need two
    }
    if cell["path"] in ("static", "random_walk"):
        bound = BayesFilter(START_MEAN, START_WITHIN, STEP_SD if cell["path"] == "random_walk" else 0.0)
        error = (bound.values_for(reward) - value[..., None])[:, FIRST_SCORED:]
        columns["known parameters|mse"] = (error**2).mean(axis=(1, 2, 3))
    return columns


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    estimates = [average(name, column) for name, column in samples.items()]
    for name, column in samples.items():
        method = name.partition("|")[0]
        estimates.append(ratio_of_means(f"{method}|ratio_to_kae", column, samples["kae|mse"]))
        if "known parameters|mse" in samples:
            estimates.append(ratio_of_means(f"{method}|ratio_to_bound", column, samples["known parameters|mse"]))
    return estimates


STUDY = Study(
    name="all_methods",
    aims="Which method estimates values best, on which path, and how far it is from the Bayes filter bound.",
    mechanisms=f"{N_PROMPTS} prompts sampled at each of {N_STEPS} steps; six kinds of value path; Bernoulli rewards.",
    estimands="Each prompt's current value, from the second step on.",
    methods=(*methods(), "known parameters"),
    measures=("mse", "ratio_to_kae", "ratio_to_bound"),
    cells=grid(path=tuple(PATHS), group_size=(1, 8)),
    replicates=15,
    shard=5,
    simulate=simulate,
    summarise=summarise,
)
