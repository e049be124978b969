"""The values that a baseline would have assigned throughout a logged run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.core.arrays import BLOCK_NUMBERS, Array, Groups, Visits
from kaestat.core.digits import center_of
from kaestat.logs.kernel_past import summed_past, sums_at, sums_suffice
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.units import Block, LogUnits

LARGEST_STEP = 4_000_000  # numbers in a temporary array of one step, all copies of the baseline together


def replay(log: RewardLog, baseline: Baseline, weights: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Value of every completion of a log, (N,), computed only from what was known at its step, and its derivative.

    Both are in the order of ``log.frame``. The derivative is that of the value in its own reward; 0 for leave-one-out
    baselines. ``weights``, "weight" or "length", is for baselines that accept weights of completions.
    """
    values, own = np.empty((2, len(log.arrays["reward"])))
    for part in replayed(log, baseline, weights):
        values[part.completions] = part.values[0]
        own[part.completions] = np.broadcast_to(part.own_derivatives, part.values.shape)[0]
    return values, own


@dataclass(frozen=True, eq=False)
class Replayed:
    """Values of all completions of some consecutive steps."""

    completions: slice  # The n positions in ``log.frame``, or in the rewards of the given units
    values: np.ndarray  # shape (L, n); L copies of the baseline
    own_derivatives: np.ndarray | float  # The same shape; a number for leave-one-out baselines: 0
    block: Block  # What was served: of one step, it has no leading axis
    settled: Baseline  # `Served.settled`


def replayed(
    log: RewardLog,
    baseline: Baseline,
    weights: str | None = None,
    *,
    copies: int = 1,
    units: LogUnits | None = None,
) -> Iterator[Replayed]:
    """A log's values step by step, for several copies of the baseline at once.

    The common part of all copies (past visits) is computed once.

    Parameters
    ----------
    log, baseline, weights
        As in `replay`.
    copies : int
        L, if the baseline's values have a leading axis of their own (`KernelBaseline.at_each`).
    units : LogUnits, optional
        The log's units, condensed. None uses the baseline's units with every completion.
    """
    units = log.units(baseline.unit, weights) if units is None else units
    units, center = as_seen(log, units, bounded=baseline.bounds_rewards, relative=baseline.relative)
    baseline = baseline.less(center)
    carry = baseline.initial_carry()
    serve, stepwise = baseline.serve, baseline.stepwise or carry is not None
    if isinstance(baseline, KernelBaseline) and carry is not None and not baseline.stepwise:
        serve, stepwise = baseline.serve_along, False
    state = np.zeros((int(units.visit_unit.max()) + 1, baseline.state_size), dtype=np.float32)
    served_at_once = BLOCK_NUMBERS if stepwise else BLOCK_NUMBERS // copies
    alone = carry is None and not stepwise
    summed = summed_past(baseline, units) if isinstance(baseline, KernelBaseline) and alone else None
    horizon = baseline.horizon if summed is None else 0.0
    blocks = units.blocks(horizon=horizon, max_visits=baseline.max_visits, max_cells=served_at_once)
    for piece in _single_steps(blocks, units, log) if stepwise else blocks:
        groups, visits = piece.groups, _shared_lags(piece.visits)
        if summed is not None:
            visits = replace(visits, sums=sums_at(summed, piece.visit))
        rows = _rows(units.visit_unit[piece.visit])  # for the only step, if steps are served one at a time
        if baseline.state_size:
            visits = replace(visits, state=state[rows])
        served = serve(groups, visits, step=piece.step, carry=carry)
        own = served.settled.own_derivative(groups, visits, step=piece.step, carry=carry)
        there, shape = groups.mask, groups.reward.shape
        if groups.times is not None:
            here = piece.visit >= 0
            there = None if here.all() else np.broadcast_to(here[..., None], shape)
        if not isinstance(own, float):
            own = _of_copies(own, shape, there, copies)
        values = _of_copies(served.values, shape, there, copies)
        carry = served.carry
        if served.state is not None:
            state[rows] = served.state
        values = values + center if center else values
        yield Replayed(_positions(piece.visit, units), values, own, piece, served.settled)


def as_seen(log: RewardLog, units: LogUnits, *, bounded: bool, relative: bool) -> tuple[LogUnits, float]:
    """A log's units with rewards as an estimator's baseline sees them, and what is subtracted from them."""
    reward, center = units.reward, center_of(log.arrays["reward"]) if relative else 0.0
    if bounded and log.reward_bounds is not None:
        steps, low, high = log.reward_bounds
        at = np.repeat(np.searchsorted(steps, units.visit_step), units.entries)
        reward = np.clip(reward, low[at], high[at])
    if reward is units.reward and not center:
        return units, center
    return replace(units, reward=reward - center), center


def copies_at_once(log: RewardLog, baseline: Baseline, copies: int) -> int:
    """The number of copies that `replayed` can handle at once within its memory limit; at least 1."""
    units = log.units(baseline.unit)
    width = int(np.unique(units.visit_step, return_counts=True)[1].max())
    reach = (
        0.0 if sums_suffice(baseline, units) else min(float(units.reach(baseline.horizon).max()), baseline.max_visits)
    )
    depth = max(reach, float(units.counts.max()))
    return max(1, min(copies, int(LARGEST_STEP / (width * depth))))


def _of_copies(array: Array, shape: tuple[int, ...], there: np.ndarray | None, copies: int) -> np.ndarray:
    """What stands at the completions of a block, shape (L, n); ``there`` are all where it is None."""
    if np.ndim(array) <= len(shape):
        array = np.asarray(array)[None]
    whole = np.broadcast_to(array, (copies, *shape))
    return whole.reshape(copies, -1) if there is None or there.all() else whole[:, there]


def _shared_lags(visits: Visits) -> Visits:
    """The same visits with one row of lags for all prompts, where these were visited together."""
    if visits.lag.shape[-2] < 2 or visits.lag.shape[-1] == 0:
        return visits
    lag = visits.lag.max(axis=-2, keepdims=True)
    together = bool(((visits.lag == lag) | (visits.count == 0)).all())
    return replace(visits, lag=lag) if together else visits


def _rows(unit: np.ndarray) -> np.ndarray | slice:
    """Where the state of units stands; a slice, which copies nothing, where they follow one another."""
    if unit.ndim != 1 or (np.diff(unit) != 1).any():
        return unit
    return slice(int(unit[0]), int(unit[0]) + len(unit))


def _positions(visit: np.ndarray, units: LogUnits) -> slice:
    """Completions of some visits; these are contiguous in the log, and masks read them off in the same order."""
    visits = visit[visit >= 0]
    return slice(units.first[visits[0]], units.first[visits[-1]] + units.entries[visits[-1]])


def _single_steps(blocks: Iterator[Block], units: LogUnits, log: RewardLog) -> Iterator[Block]:
    """The steps of blocks one by one, without the padding of those with fewer or smaller groups, the prompts named."""
    ids = np.fromiter(log.prompts, dtype=object, count=len(log.prompts))
    for block in blocks:
        mask, weight, times = block.groups.mask, block.groups.weight, block.groups.times
        sums = {field.name: getattr(block.visits, field.name) for field in fields(Visits)}
        for t, visit in enumerate(block.visit):
            here = visit[visit >= 0]
            cut = slice(len(here)), slice(int(units.entries[here].max()))
            there = None if mask is None else mask[t][cut]
            yield Block(
                here,
                int(np.asarray(block.step)[t, 0, 0]),
                Groups(
                    block.groups.reward[t][cut],
                    mask=None if there is None or there.all() else there,
                    weight=None if weight is None else weight[t][cut],
                    times=None if times is None else times[t][cut],
                    prompt_ids=ids[units.visit_prompt[here]].tolist(),
                ),
                Visits(**{name: None if sum_ is None else sum_[t, : len(here)] for name, sum_ in sums.items()}),
            )
