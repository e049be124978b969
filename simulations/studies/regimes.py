"""The default where values do more than walk, against the filter that knows the parameters of each regime."""

from functools import cache

import numpy as np
import pandas as pd

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD, SECOND_METHOD, parse_method
from simulations.bandits.regimes import REGIMES, World, world
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, ratio_of_means
from simulations.harness.study import grid

METHODS = (DEFAULT_METHOD, SECOND_METHOD, "kae")
GROUP_SIZES = (1, 2, 8)
SOFT = ("partial credit in one first visit of eight", "first visits in quarters")  # binary rewards afterwards


@cache
def baseline(method: str) -> Baseline:
    """The baseline of a specification."""
    name, params = parse_method(method)
    return make_baseline(name, **params).leave_one_out()


def squared_errors(estimator: Baseline, made: World, reward: np.ndarray | None = None) -> np.ndarray:
    """Mean squared value error of each replicate over the scored visits, shape (R,).

    reward (ndarray, shape (R, T, P, G), optional): In place of the simulated ones.
    """
    reward = made.reward if reward is None else reward
    total, total_sq = (np.moveaxis(part.sum(axis=-1), 1, -1) for part in (reward, reward**2))
    carry, state, errors = estimator.initial_carry(), None, []
    for t in range(reward.shape[1]):
        start = int(max(0, t - estimator.max_visits))
        lag = np.broadcast_to((made.step[t] - made.step[start:t]).astype(float), total[..., start:t].shape)
        past = (lag, np.full(lag.shape, float(reward.shape[-1])), total[..., start:t], total_sq[..., start:t])
        served = estimator.serve(Groups(reward[:, t]), Visits(*past, state=state), step=int(made.step[t]), carry=carry)
        carry, state = served.carry, served.state
        error = served.values - made.value[:, t, :, None]  # noqa: PD011 (no frame)
        errors.append((error**2).mean(axis=(1, 2)))
    return np.stack(errors, axis=1)[:, made.scored].mean(axis=1)


def simulate(cell: Cell, streams: Streams) -> Samples:
    made = world(cell["regime"], cell["group_size"], streams)
    known = ((made.known - made.value[..., None]) ** 2)[:, made.scored]
    columns = {"known parameters|mse": known.mean(axis=(1, 2, 3))}
    for method in METHODS:
        columns[f"{method}|mse"] = squared_errors(baseline(method), made)
    if cell["regime"] == "walk .15":
        columns |= {
            f"{DEFAULT_METHOD}, {name}|mse": squared_errors(
                baseline(DEFAULT_METHOD), made, softened(made, name, streams)
            )
            for name in SOFT
        }
    return columns


def softened(made: World, name: str, streams: Streams) -> np.ndarray:
    """Rewards of which the first visits have partial credit: a half, or the mean of four draws."""
    soft = made.reward.copy()
    if name == SOFT[0]:
        soft[:, 0, ::8] = 0.5
    else:
        drawn = streams.uniform("quarters", *soft.shape[2:], 4)
        soft[:, 0] = (drawn < made.value[:, 0, :, None, None]).mean(axis=-1)
    return soft


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Every method's error and its ratio to that of the known filter; of partial credit, to the run without it."""
    known = samples["known parameters|mse"]
    estimates = [average("known parameters|mse", known)]
    for name, column in samples.items():
        method, clean = name.partition("|")[0], samples[f"{DEFAULT_METHOD}|mse"]
        if method == "known parameters":
            continue
        estimates.append(average(name, column))
        if method in METHODS:
            estimates.append(ratio_of_means(f"{method}|ratio_to_known", column, known))
        else:
            estimates.append(ratio_of_means(f"{method}|ratio_to_clean", column, clean))
    return estimates


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """One row per method: its largest and its mean ratio to the known filter, the two states left out."""
    told = (summary["measure"] == "ratio_to_known") & (summary["regime"] != "two states")
    ratio = summary[told].groupby("method")["estimate"]
    frame = pd.DataFrame({"max_ratio_to_known": ratio.max(), "mean_ratio_to_known": ratio.mean()})
    return frame.reset_index().sort_values("max_ratio_to_known", ignore_index=True)


STUDY = Study(
    name="regimes",
    aims="How far the default is from what can be known where values do not merely walk, and what soft rewards "
    "at the first visit do to it later.",
    mechanisms="64 prompts, all visited together; walks, jumps, a shock to all, drifts of each prompt's own, three "
    "visits with and without dead prompts, continuous rewards, uneven gaps, two states.",
    estimands="Each prompt's current value, over the second half of the visits (from the second on, of three).",
    methods=("known parameters", *METHODS, *(f"{DEFAULT_METHOD}, {name}" for name in SOFT)),
    measures=("mse", "ratio_to_known", "ratio_to_clean"),
    cells=grid(regime=tuple(REGIMES), group_size=GROUP_SIZES),
    replicates=32,
    shard=16,
    simulate=simulate,
    summarise=summarise,
    conclude=conclude,
)
