"""The values that a baseline would have assigned, had it been used throughout a logged run."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from kaestat.arrays import BLOCK_NUMBERS, Array, Groups, Visits
from kaestat.baselines.base import Baseline
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.units import Block, LogUnits


def replay(log: RewardLog, baseline: Baseline, weights: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Value of every completion of a log, from nothing but what was known at its step.

    Parameters
    ----------
    log : RewardLog
    baseline : Baseline
    weights : {"weight", "length"}, optional
        What completions are weighted by (`RewardLog.completion_weights`), for baselines that take weights.

    Returns
    -------
    values : ndarray, shape (N,)
        In the order of ``log.frame``.
    own_derivatives : ndarray, shape (N,)
        Derivative of each value in its own reward; 0 for leave-one-out baselines.
    """
    units = log.units(baseline.unit, weights)
    values, own = np.empty(len(units.reward)), np.empty(len(units.reward))
    carry = baseline.initial_carry()
    stepwise = baseline.stepwise or carry is not None
    kept = np.zeros((int(units.visit_unit.max()) + 1, baseline.state_size), dtype=np.float32)
    for block in units.blocks(
        horizon=baseline.horizon, max_visits=baseline.max_visits, max_cells=0 if stepwise else BLOCK_NUMBERS
    ):
        step: Array
        groups, visits, step = block.groups, block.visits, block.step
        if stepwise:
            groups, visits, step = _single_step(block, units, log)
        row = units.visit_unit[block.visit[0]]  # of the only step, where one is served at a time
        if baseline.state_size:
            visits = replace(visits, state=kept[row])
        present = slice(None) if groups.mask is None else groups.mask
        where = _positions(block, units)
        served = baseline.serve(groups, visits, step=step, carry=carry)
        weight = served.settled.own_derivative(groups, visits, step=step, carry=carry) + np.zeros_like(groups.reward)
        values[where] = served.values[present].reshape(-1)
        own[where] = weight[present].reshape(-1)
        carry = served.carry
        if served.state is not None:
            kept[row] = served.state
    return values, own


def _positions(block: Block, units: LogUnits) -> slice:
    """Completions of a block; visits are contiguous in the log, and masks read them off in the same order."""
    visits = block.visit[block.visit >= 0]
    return slice(units.first[visits[0]], units.first[visits[-1]] + units.counts[visits[-1]])


def _single_step(block: Block, units: LogUnits, log: RewardLog) -> tuple[Groups, Visits, int]:
    """A block of one step without its leading axis, the prompts named."""
    prompts = [log.prompts[code] for code in units.visit_prompt[block.visit[0]]]
    mask = None if block.groups.mask is None else block.groups.mask[0]
    weight = None if block.groups.weight is None else block.groups.weight[0]
    groups = replace(block.groups, reward=block.groups.reward[0], mask=mask, weight=weight, prompt_ids=prompts)
    sums = {field.name: getattr(block.visits, field.name) for field in fields(Visits)}
    visits = Visits(**{name: None if column is None else column[0] for name, column in sums.items()})
    return groups, visits, int(block.step[0, 0, 0])
