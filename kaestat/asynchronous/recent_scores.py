"""Scores of candidate bandwidths where steps come in any order.

A step's scores follow from its visits and those before it, so what a value gets depends on the visits alone and not on
the order in which they came.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from kaestat.asynchronous.late_history import LateHistory
from kaestat.asynchronous.visit_completions import completions_of, split_now
from kaestat.baselines.base import Baseline
from kaestat.baselines.kernel_mean import KernelBaseline
from kaestat.baselines.learned_bandwidth import scores
from kaestat.core.arrays import Visits

WINDOW = 16  # steps with visits, before a step, whose scores count for it: about a return of the prompts of small runs
MOST_PROMPTS = 1024  # of a step, that are scored: more choose the same bandwidth, and cost seconds at 16,384 prompts


def running_of(baseline: Baseline) -> Any:
    """The `RunningScores` of a baseline that learns its bandwidth along a run; None for others."""
    return baseline.selector.running if isinstance(baseline, KernelBaseline) else None


def visits_to_keep(baseline: Baseline) -> float:
    """How many newest visits of a prompt a history keeps: as many as a value looks back on, for scored steps too."""
    return baseline.max_visits + (0 if running_of(baseline) is None else WINDOW)


def scores_before(baseline: Baseline, history: LateHistory, step: int, known: dict[int, Any]) -> Any:
    """The carry of a baseline that learns its bandwidth, from the `WINDOW` steps with visits before a step.

    ``known`` has scores that were computed from these same visits, by step; new ones are added.
    None for a baseline that learns nothing from step to step. A prior's visits before the run are not scored, nor steps
    of which a part of the past may be gone.
    """
    running = running_of(baseline)
    if running is None:
        return None
    size = len(history) + 1
    steps, count = history.fields["step"][:size], history.fields["count"][:size]
    first = history.last_step - history.late if np.isfinite(history.horizon) else 0
    scored = np.unique(steps[(count > 0) & (steps >= max(first, 0)) & (steps < step)])[-WINDOW:]
    for each in scored.tolist():
        if each not in known:
            known[each] = _scores_of(cast(KernelBaseline, baseline), history, each)
    return running.joined([known[each] for each in scored.tolist()])


def _scores_of(baseline: KernelBaseline, history: LateHistory, step: int) -> dict[str, np.ndarray]:
    """The scores of one step, from its visits and those before it.

    Losses are quadratic in the rewards, so completions with the visits' sums have the losses of the actual ones.
    """
    size = len(history) + 1
    here = (history.fields["step"][:size] == step) & (history.fields["count"][:size] > 0)
    rows = np.flatnonzero(here.any(axis=1))
    rows = rows[:: -(-len(rows) // MOST_PROMPTS)]
    visits, now = split_now(history.visits_known(rows, np.full(len(rows), step)))
    groups = completions_of(cast(Visits, now))
    if baseline.stepwise:
        keys = list(history.row)
        groups = replace(groups, prompt_ids=[keys[row - 1] for row in rows.tolist()])
    return scores(baseline.less(history.center), groups, visits, step=step)
