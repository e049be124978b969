"""The values that a baseline would have assigned throughout a logged run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.arrays import Groups, Visits
from kaestat.core.digits import center_of
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.units import Block, LogUnits


def replay(log: RewardLog, baseline: Baseline, weights: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Value of every completion of a log, (N,), computed only from what was known at its step, and its derivative.

    Both are in the order of ``log.frame``. The derivative is that of the value in its own reward; 0 for leave-one-out
    baselines. ``weights``, "weight" or "length", is for baselines that accept weights of completions.
    """
    values, own = np.empty((2, len(log.arrays["reward"])))
    for completions, value, derivative in replayed(log, baseline, log.units(baseline.unit, weights)):
        values[completions], own[completions] = value, derivative
    return values, own


def replayed(
    log: RewardLog, baseline: Baseline, units: LogUnits
) -> Iterator[tuple[slice, np.ndarray, np.ndarray | float]]:
    """A log's values, some consecutive steps at a time, from its units of the baseline's kind.

    Yields positions in the rewards of the units, the values there, and the derivatives as in `replay`.
    """
    units, center = as_seen(log, units, bounded=baseline.bounds_rewards, relative=baseline.relative)
    baseline = baseline.less(center)
    carry = baseline.initial_carry()
    stepwise = baseline.stepwise or carry is not None
    state = np.zeros((int(units.visit_unit.max()) + 1, baseline.state_size), dtype=np.float32)
    blocks = units.blocks(horizon=baseline.horizon, max_visits=baseline.max_visits)
    for piece in _single_steps(blocks, units, log) if stepwise else blocks:
        groups, visits = piece.groups, piece.visits
        if baseline.state_size:
            visits = replace(visits, state=state[units.visit_unit[piece.visit]])
        served = baseline.serve(groups, visits, step=piece.step, carry=carry)
        own = served.settled.own_derivative(groups, visits, step=piece.step, carry=carry)
        carry = served.carry
        if served.state is not None:
            state[units.visit_unit[piece.visit]] = served.state
        there = groups.mask
        if groups.times is not None:
            there = np.broadcast_to((piece.visit >= 0)[..., None], groups.reward.shape)
        values = _flat(served.values, groups.reward.shape, there) + center
        derivative = own if isinstance(own, float) else _flat(own, groups.reward.shape, there)
        yield _positions(piece.visit, units), values, derivative


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


def _flat(array: np.ndarray, shape: tuple[int, ...], there: np.ndarray | None) -> np.ndarray:
    """What stands at the completions of a block, shape (n,); ``there`` are all where it is None."""
    whole = np.broadcast_to(array, shape)
    return whole.ravel() if there is None else whole[there]


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
            visits = visit[visit >= 0]
            cut = slice(len(visits)), slice(int(units.entries[visits].max()))
            there = None if mask is None else mask[t][cut]
            yield Block(
                visits,
                int(np.asarray(block.step)[t, 0, 0]),
                Groups(
                    block.groups.reward[t][cut],
                    mask=None if there is None or there.all() else there,
                    weight=None if weight is None else weight[t][cut],
                    times=None if times is None else times[t][cut],
                    prompt_ids=ids[units.visit_prompt[visits]].tolist(),
                ),
                Visits(**{name: None if sum_ is None else sum_[t, : len(visits)] for name, sum_ in sums.items()}),
            )
