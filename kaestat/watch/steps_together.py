"""Many steps of a run at once, as a log that goes on from what an estimator knows."""

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.core.arrays import Groups, Visits
from kaestat.core.digits import lost_digits
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.reach import effective_history, reached
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.steps.opening import opened
from kaestat.history.late_visits import in_rounds
from kaestat.logs.labels import Labels
from kaestat.logs.replay import Standing, replayed
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.units import LogUnits
from kaestat.watch.step_rows import StepRows

PLACE = "place"  # column of the log: where a completion stands among those of the steps


def log_of(steps: list[StepRows]) -> RewardLog | None:
    """The log of several steps; None where they are to be taken one by one, which tells what is unusual."""
    streams = [rows.stream for rows in steps if rows.stream is not None]
    unusual = any(lost_digits(rows.reward.min(), rows.reward.max()) for rows in steps)
    if len(steps) < 2 or len(streams) not in (0, len(steps)) or unusual:
        return None
    reward = np.concatenate([rows.reward for rows in steps])
    step = np.repeat([rows.step for rows in steps], [len(rows.reward) for rows in steps])
    prompt = Labels.of(np.concatenate([rows.prompt for rows in steps]).tolist())
    group = Labels.of(np.concatenate(streams).tolist()) if streams else None
    return RewardLog.of_labels(prompt, step, reward, group, {PLACE: np.arange(len(reward))})


def served_together(
    estimator: AdvantageEstimator, log: RewardLog, values: np.ndarray, own: np.ndarray, reach: np.ndarray
) -> bool:
    """Whether an estimator in strict order can take all steps of the log at once; if so, it has.

    ``values`` and ``own``, (N,), get the values of the completions and their derivatives in their own rewards, and
    ``reach``, (2, T), is `reach_of` each step. They are those of the steps one by one but for rounding, since sums run
    over arrays of other shapes. The same visits enter the history; one that no later step can reach may stay longer.
    """
    baseline, state = estimator.baseline, opened(estimator.held.state, estimator.baseline)
    remembers = state.history is not None or state.carry is not None
    if baseline.needs_weights or (baseline.unit == "group" and log.has_groups and remembers):
        return False
    units, kept = log.units(baseline.unit), Standing(state.carry, np.zeros((len(log.prompts), 0), dtype=np.float32))
    if state.history is not None:
        columns = state.history.columns
        rows = columns.rows(log.prompts)
        unit, column = np.nonzero(columns.fields["count"][rows] > 0)
        units = units.after(unit, {name: field[rows[unit], column] for name, field in columns.fields.items()})
        kept.state = columns.state[rows]
    place, first = log.arrays[PLACE], 0
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            for part in replayed(log, baseline, units=units, onto=kept):
                there, visit, of_part = place[part.completions], part.block.visit, part.own_derivatives
                values[there], own[there] = part.values[0], of_part if isinstance(of_part, float) else of_part[0]
                since = np.where(visit < 0, 0, units.since[visit])
                found = reach_of(part.settled, part.block.groups, part.block.visits, part.block.step, since)
                last = first + visit[..., 0].size
                reach[:, first:last] = np.reshape(np.broadcast_arrays(*found), (2, -1))
                first = last
    except ValueError:  # a reward is refused: the steps one by one say where
        return False
    if not all(np.isfinite(each).all() for each in (values, *(kept.carry or {}).values())):
        return False
    _record(estimator, state, log, units, kept)
    return True


def reach_of(
    baseline: Baseline, groups: Groups, visits: Visits, step: int | np.ndarray, since: np.ndarray
) -> tuple[Any, Any]:
    """Share of a step's prompts with a past that still counts, and the mean number of completions it counts as; (...).

    ``since``, (..., P), are steps since the newest visit, 0 for none.
    """
    history = effective_history(baseline, groups, visits, step) if isinstance(baseline, KernelBaseline) else math.nan
    within = (since > 0) & reached(baseline, since)
    return within.sum(axis=-1) / (groups.count > 0).sum(axis=(-2, -1)), history


def _record(
    estimator: AdvantageEstimator, state: EstimatorState, log: RewardLog, units: LogUnits, kept: Standing
) -> None:
    """Make the steps part of the estimator's past."""
    new, keys, held = slice(units.begun, None), log.prompts, estimator.held
    unit, steps, since = units.visit_unit[new], units.visit_step[new], units.since[new]
    last, recorded, with_streams = int(steps[-1]), state.recorded, state.with_streams
    if state.history is not None:
        columns, with_streams = state.history.columns, log.has_groups
        sums = {"count": units.counts[new].astype(float), "total": units.total[new], "total_sq": units.total_sq[new]}
        for turn in in_rounds(unit, steps):
            named = [keys[code] for code in unit[turn].tolist()]
            own = kept.state[unit[turn]] if kept.state.shape[1] else None
            columns.append(named, columns.rows(named), steps[turn], {n: sum_[turn] for n, sum_ in sums.items()}, own)
        for lag in np.split(since, np.flatnonzero(np.diff(steps)) + 1):
            if (text := held.returns.see(lag[lag > 0])) is not None:
                warnings.warn(text, stacklevel=2)
    elif kept.carry is not None:
        recorded = dict.fromkeys(keys[code] for code in unit[steps == last].tolist())
    after = replace(state, carry=kept.carry, last_step=last, recorded=recorded, with_streams=with_streams)
    after = replace(after, weighting="none")
    estimator.cell.put(held._replace(state=after, record=None, values=None, answer=None))
