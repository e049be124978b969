"""How good the answer of `kaestat analyze` is, on logs of many kinds and sizes whose true values are known."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from kaestat import RewardLog
from kaestat.baselines.registry import DEFAULT_METHOD, METHODS
from kaestat.baselines.reward_range import on_range
from kaestat.datasets import simulated_run
from kaestat.logs.replay import replay
from kaestat.logs.reward_range import reward_range
from kaestat.logs.risk import eligible_visits, risk_baseline
from kaestat.logs.tuning import MARK
from kaestat.report.analysis import analyze, offered_methods
from kaestat.report.headline import headline, stated_reduction
from kaestat.report.recommendation import DEFAULT_WITHOUT_HISTORY
from simulations.bandits.paths import PATHS, value_paths
from simulations.bandits.regimes import CONCENTRATION, N_PROMPTS, REGIMES, rewards_of, steps_of
from simulations.harness import Cell, Samples, Streams, Study
from simulations.harness.performance import pooled_share
from simulations.harness.study import grid, proportions

REAL, ONCE = "as a real run", "one epoch"
KINDS = (*REGIMES, "static", "saturating", REAL, ONCE)
NEAR = 1.2  # times the error of the best candidate
FIRST_PROMPTS, TRUTH_PROMPTS, TRUTH_LOGS = 200, 600, 16  # behind a first look at all candidates, and behind true errors
CONTENDING = 1.5  # times the lowest error of the first look
TRUTH_FROM = 10**6  # number of the first of these logs, as a replicate
N_BOOT = 400


@dataclass(frozen=True)
class Shape:
    """How large a log is: an epoch takes ``batches`` steps."""

    prompts: int
    visits: int
    group_size: int
    batches: int


SHAPES = {
    f"{s.prompts} x {s.visits} x {s.group_size}": s
    for s in (
        Shape(6, 10, 4, 1),
        Shape(6, 30, 2, 1),
        Shape(15, 12, 8, 3),
        Shape(20, 15, 16, 1),
        Shape(40, 10, 4, 2),
        Shape(40, 30, 1, 4),
        Shape(100, 6, 4, 5),
        Shape(200, 12, 2, 8),
    )
}


@dataclass(frozen=True, eq=False)
class Made:
    """A log, and the true value of each completion in the order of ``log.frame``."""

    log: RewardLog
    value: np.ndarray


def made_logs(kind: str, shape: Shape, streams: Streams) -> list[Made]:
    """A log for each replicate."""
    visits = 1 if kind == ONCE else shape.visits
    if kind in (REAL, ONCE):
        seeds = [int(rng.integers(2**31)) for rng in streams.generators("run")]
        runs = [
            simulated_run(n_prompts=shape.prompts, n_epochs=visits, group_size=shape.group_size, seed=seed)
            for seed in seeds
        ]
        return [Made(run.log, run.values) for run in runs]
    drawn = [
        _drawn(kind, shape, Streams(streams.seed, f"{streams.key} {block}", streams.replicates))
        for block in range(-(-shape.prompts // N_PROMPTS))
    ]
    value, reward = (np.concatenate(parts, axis=2)[:, :visits, : shape.prompts] for parts in zip(*drawn, strict=True))
    epoch = steps_of(kind, value.shape[1])[: value.shape[1]] if kind in REGIMES else np.arange(value.shape[1])
    batch = np.arange(shape.prompts) * shape.batches // shape.prompts
    step = epoch[:, None] * shape.batches + batch
    return [_log(*one, step) for one in zip(value, reward, strict=True)]


def _drawn(kind: str, shape: Shape, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
    """Values (R, T, P) and rewards (R, T, P, G) of 64 prompts."""
    if kind in PATHS:
        value = value_paths(kind, streams, shape.visits, N_PROMPTS)
    else:
        value = REGIMES[kind](streams)[0]
    return value, rewards_of(value, shape.group_size, streams, CONCENTRATION if kind == "Beta rewards" else None)


def _log(value: np.ndarray, reward: np.ndarray, step: np.ndarray) -> Made:
    visit, prompt, _ = np.indices(reward.shape)
    at = np.argsort(step[visit, prompt], axis=None, kind="stable")
    columns = (
        np.broadcast_to(c, reward.shape).ravel()[at] for c in (prompt, step[..., None], reward, value[..., None])
    )
    prompt, step, reward, value = columns
    return Made(RewardLog(prompt, step, reward), value)


def true_error(made: Made, method: str, min_visits: int) -> float:
    """Mean squared value error of a method over the scored visits: within prompts, then over prompts."""
    log, units = made.log, made.log.prompt_units
    baseline = on_range(risk_baseline(method.removesuffix(MARK)), *reward_range(log))
    squared = np.add.reduceat((replay(log, baseline)[0] - made.value) ** 2, units.first) / units.counts
    scored = eligible_visits(log, min_visits, bool((units.counts > 1).any()))
    prompt = units.visit_prompt[scored]
    n = np.bincount(prompt)
    return float((np.bincount(prompt, weights=squared[scored])[n > 0] / n[n > 0]).mean())


@cache
def truth_logs(seed: int, key: str, kind: str, shape: Shape, first: int, n: int) -> list[Made]:
    """Further logs of a cell, over which errors are averaged."""
    return made_logs(kind, shape, Streams(seed, key, range(TRUTH_FROM + first, TRUTH_FROM + first + n)))


@cache
def expected_error(seed: int, key: str, kind: str, shape: Shape, method: str, first: int, n: int) -> float:
    """The mean of `true_error` over ``n`` further logs of a cell from number ``first`` on."""
    blocks = (truth_logs(seed, key, kind, shape, at, min(8, first + n - at)) for at in range(first, first + n, 8))
    return float(np.mean([true_error(made, method, 0 if kind == ONCE else 1) for block in blocks for made in block]))


def true_errors(seed: int, key: str, kind: str, shape: Shape) -> Callable[[str], float]:
    """The expected error of a method in a cell, as a function of its name."""
    n = max(TRUTH_LOGS, -(-TRUTH_PROMPTS // shape.prompts))
    return lambda method: expected_error(seed, key, kind, shape, method, _first_look(shape), n)


def lowest_error(seed: int, key: str, kind: str, shape: Shape) -> float:
    """The true error of the best candidate of a cell.

    The lowest of many noisy means is too low. So a first look takes those that may be the best, and other logs
    measure their errors.
    """
    first = {
        method: expected_error(seed, key, kind, shape, method, 0, _first_look(shape)) for method in candidates(kind)
    }
    bound = CONTENDING * min(first.values())
    return min(map(true_errors(seed, key, kind, shape), (method for method in first if first[method] <= bound)))


def _first_look(shape: Shape) -> int:
    """Number of logs; the others come after them."""
    return max(4, -(-FIRST_PROMPTS // shape.prompts))


def candidates(kind: str) -> list[str]:
    """What `analyze` chooses from unasked, less what it tunes."""
    return [name for name in offered_methods() if kind != ONCE or (name in METHODS and not risk_baseline(name).horizon)]


def simulate(cell: Cell, streams: Streams) -> Samples:
    kind, shape = cell["kind"], SHAPES[cell["shape"]]
    world = (streams.seed, streams.key, kind, shape)
    error_of, best = true_errors(*world), lowest_error(*world)
    rows = []
    for made in made_logs(kind, shape, streams):
        analysis = analyze(made.log, every=False, n_boot=N_BOOT)
        found, stated = analysis.recommendation, stated_reduction(analysis)
        error, rival = error_of(found.row), error_of(found.rival)
        if stated is not None:
            covers = stated[0] <= 1 - error / rival <= stated[1]
        else:
            _, low, high = found.difference
            covers = not np.isfinite(low) or low <= error - rival <= high
        rows.append(
            {
                "near_best": error <= NEAR * best,
                "covers": covers,
                "says_100": "100 %" in headline(analysis),
                "claims_better": found.better,
                "wrongly_better": found.better and error > rival,
                "not_the_default": found.row not in (DEFAULT_METHOD, DEFAULT_WITHOUT_HISTORY),
            }
        )
    return {f"analyze|{name}": np.array([row[name] for row in rows], dtype=float) for name in rows[0]}


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """Shares over all logs and over those of each shape: ``shape, measure, share, se, logs``."""
    rows = []
    for shape, here in [("all", summary), *summary.groupby("shape", sort=False)]:
        for measure, part in here.groupby("measure", sort=False):
            rows.append((shape, measure, *pooled_share(part)))
    return pd.DataFrame(rows, columns=["shape", "measure", "share", "se", "logs"])


STUDY = Study(
    name="recommended",
    aims="How often the method that analyze recommends is near the best, and whether what it says of it holds.",
    mechanisms="Logs of 6 to 200 prompts and 6 to 30 visits (one visit in one epoch), in batches, of the regimes of "
    "the study regimes, of static and saturating values, and of the run of kaestat.datasets.",
    estimands="The recommended method's value error, and its difference to the rival's, in further logs of the cell.",
    cells=grid(kind=KINDS, shape=tuple(SHAPES)),
    replicates=5,
    shard=5,
    simulate=simulate,
    summarise=proportions,
    conclude=conclude,
)
