"""How far each method is from the filter that knows how values move, over speeds, changes of speed and group sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines import Baseline
from kaestat.baselines.registry import parse_method
from simulations.bandits.bayes_filter import BayesFilter
from simulations.bandits.paths import START_MEAN, START_WITHIN, start_values
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, ratio_of_means
from simulations.harness.study import grid

N_PROMPTS = 64
CHANGE_AT, JUMP = 10, 1.3  # visit at which the speed changes or values jump, and by how many logits
SPEEDS = {  # standard deviation of the walk per visit, before and after the change
    "walk 0.03": (0.03, 0.03),
    "walk 0.13": (0.13, 0.13),
    "walk 0.5": (0.5, 0.5),
    "fast, then slow": (0.6, 0.04),
    "slow, then fast": (0.04, 0.4),
    "jump": (0.04, 0.04),
}
METHODS = (
    "bayes_filter",
    "kae_eb:bandwidth=auto",
    "kae_eb:bandwidth=20",
    "kae:bandwidth=auto",
    "kae:bandwidth=10",
    "kalman",
    "spo",
    "james_stein",
    "rloo",
)
BANDWIDTHS = (1.5, 3.0, 6.0, 12.0, 25.0, 60.0, 600.0)  # visits; the best for the truth is not a method but a yardstick
TUNED = ("kae", "kae_eb")
GROUP_SIZES = (1, 2, 4, 8, 16)
STEADY = ("walk 0.03", "walk 0.13", "walk 0.5")  # keep their speed
# What we recommend, and where weights or an unknown range rule that out; how near they are to be to the best achieved.
DEFAULT, SECOND, LIMIT = "bayes_filter", "kae_eb:bandwidth=auto", 1.15


@cache
def baseline(method: str) -> Baseline:
    """The baseline of a specification."""
    name, params = parse_method(method)
    return make_baseline(name, **params).leave_one_out()


def values_and_filter(cell: Cell, streams: Streams) -> tuple[np.ndarray, list[np.ndarray]]:
    """True values, shape (R, T, P), and the transitions that the filter with known parameters is given."""
    before, after = SPEEDS[cell["path"]]
    n_visits = cell["visits"]
    speeds = np.where(np.arange(1, n_visits) < CHANGE_AT, before, after)
    moves = speeds[:, None] * streams.normal("walk", n_visits - 1, N_PROMPTS)
    bound = known_filter()
    transitions = [bound.walk(speed) for speed in speeds.tolist()]
    if cell["path"] == "jump":
        direction = np.where(streams.uniform("jumps", N_PROMPTS) < 0.5, -1.0, 1.0)
        moves[:, CHANGE_AT - 1] += JUMP * direction
        transitions[CHANGE_AT - 1] = transitions[CHANGE_AT - 1] @ bound.jump(JUMP)
    start = logit(start_values(streams, N_PROMPTS))[:, None]
    return expit(start + np.concatenate([np.zeros_like(start), np.cumsum(moves, axis=1)], axis=1)), transitions


@cache
def known_filter() -> BayesFilter:
    """Of the distribution that values start from."""
    return BayesFilter(START_MEAN, START_WITHIN, 0.0)


def squared_errors(estimator: Baseline, reward: np.ndarray, value: np.ndarray, *, every: int = 1) -> np.ndarray:
    """Mean squared value error of each replicate over the second half of the visits, shape (R,).

    reward: ndarray, shape (R, T, P, G).
    value: ndarray, shape (R, T, P).
    every: Steps from one visit of all prompts to the next.
    """
    carry, state, errors = estimator.initial_carry(), None, []
    n_visits, group_size = reward.shape[1], reward.shape[-1]
    first = 0 if carry is not None else n_visits // 2
    for t in range(first, n_visits):
        start = int(max(0, t - estimator.max_visits))
        total = np.moveaxis(reward[:, start:t].sum(axis=-1), 1, -1)
        lag = np.broadcast_to(every * np.arange(t - start, 0, -1.0), total.shape)
        count = np.full_like(total, group_size)
        visits = Visits(lag=lag, count=count, total=total, total_sq=total, state=state)
        served = estimator.serve(Groups(reward[:, t]), visits, step=t * every, carry=carry)
        carry, state = served.carry, served.state
        if t >= n_visits // 2:
            error = served.values - value[:, t, :, None]  # noqa: PD011 (no frame)
            errors.append((error**2).mean(axis=(1, 2)))
    return np.mean(errors, axis=0)


def simulate(cell: Cell, streams: Streams) -> Samples:
    value, transitions = values_and_filter(cell, streams)
    group_size, every = cell["group_size"], cell["every"]
    drawn = streams.uniform("rewards", cell["visits"], N_PROMPTS, group_size)
    reward = (drawn < value[..., None]).astype(float)
    errors = (known_filter().values_for(reward, transitions) - value[..., None])[:, cell["visits"] // 2 :]
    columns = {"known parameters|mse": (errors**2).mean(axis=(1, 2, 3))}
    for method in METHODS:
        if group_size == 1 and method in ("rloo", "james_stein"):  # group means need two
            continue
        columns[f"{method}|mse"] = squared_errors(baseline(method), reward, value, every=every)
    for method in TUNED:
        for bandwidth in BANDWIDTHS:
            fixed = make_baseline(method, bandwidth=bandwidth * every)
            columns[f"{method} at {bandwidth:g}|mse"] = squared_errors(fixed, reward, value, every=every)
    return columns


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Every method's error, its ratio to that of the known filter, and to the best that any way here achieves.

    ``room`` is what is left below the limit for what we recommend; replicates are added until its sign is known.
    """
    known = samples["known parameters|mse"]
    tuned = {}
    for method in TUNED:
        columns = [samples[f"{method} at {bandwidth:g}|mse"] for bandwidth in BANDWIDTHS]
        tuned[f"{method}, best bandwidth"] = min(columns, key=lambda column: float(column.mean()))
    named = {method: samples[f"{method}|mse"] for method in METHODS if f"{method}|mse" in samples} | tuned
    best = min(named.values(), key=lambda column: float(column.mean()))
    estimates = [average("known parameters|mse", known)]
    for method, column in named.items():
        estimates += [
            average(f"{method}|mse", column),
            ratio_of_means(f"{method}|ratio_to_known", column, known),
            ratio_of_means(f"{method}|ratio_to_best", column, best),
        ]
    for method in (DEFAULT, SECOND) if cell["path"] in STEADY else (DEFAULT,):
        ratio = ratio_of_means(f"{method}|room", named[method], best)
        estimates.append(replace(ratio, estimate=LIMIT - ratio.estimate))
    return estimates


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """One row per method: the largest and the mean ratio, to the known filter and to the best achieved."""
    ratios = summary[summary["measure"].isin(["ratio_to_known", "ratio_to_best"])]
    by_measure = {
        f"{statistic}_{measure}": rows.groupby("method")["estimate"].agg(statistic)
        for measure, rows in ratios.groupby("measure")
        for statistic in ("max", "mean")
    }
    return pd.DataFrame(by_measure).reset_index().sort_values("max_ratio_to_best", ignore_index=True)


STUDY = Study(
    name="efficiency",
    aims="Which method needs no tuning: never far from the best that is possible, at any speed, after any change, for "
    "any group size and any time between visits.",
    mechanisms=f"{N_PROMPTS} prompts, all visited together; logits walk at random with one speed, change speed at "
    f"visit {CHANGE_AT}, or jump there by {JUMP}; Bernoulli rewards.",
    estimands="Each prompt's current value, over the second half of the visits.",
    methods=("known parameters", *METHODS, *(f"{method}, best bandwidth" for method in TUNED)),
    measures=("mse", "ratio_to_known", "ratio_to_best", "room"),
    cells=(
        *grid(visits=(5, 30), path=STEADY, group_size=GROUP_SIZES, every=(1,)),
        *grid(visits=(30,), path=tuple(SPEEDS)[3:], group_size=GROUP_SIZES, every=(1,)),
        *grid(visits=(30,), path=("walk 0.13",), group_size=(4,), every=(12, 60, 99)),
    ),
    replicates=16,
    shard=16,
    precision={"room": 0.3},
    max_replicates=96,
    simulate=simulate,
    summarise=summarise,
    conclude=conclude,
)
