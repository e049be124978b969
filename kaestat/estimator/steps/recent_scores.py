"""Scores of candidate bandwidths where steps come in any order: those of each recent step apart.

A step's scores follow from its visits and those before it. A visit that comes late changes those of its own step and of
later ones, which are then computed anew; all others stay. So what a value gets depends on the visits alone, and a step
in order costs one score, as in strict order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.core.arrays import Visits
from kaestat.estimator.steps.visit_completions import completions_of, counted, split_now
from kaestat.history.columns import Columns
from kaestat.history.unordered import visits_known

WINDOW = 16  # steps with visits, before a step, whose scores count for it
MOST_COMPLETIONS = 32  # that a weighted visit counts as
Scores = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class RecentScores:
    """The recent steps that have visits, and scores of some of them.

    Attributes
    ----------
    steps : tuple of int
        Increasing.
    found : dict of int to dict of ndarray
        `kaestat.baselines.kae.KernelBaseline.scores` of steps, put in as they are needed: they follow from the visits.
    """

    steps: tuple[int, ...] = ()
    found: dict[int, Scores] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Columns) -> RecentScores:
        """The steps of a history, without scores. A prior's visits before the run are not scored."""
        size = len(columns.row) + 1
        step, count = columns.fields["step"][:size], columns.fields["count"][:size]
        here = (count > 0) & (step >= 0)
        return cls(tuple(np.unique(step[here]).tolist())).after(np.zeros(0, dtype=int), _first_allowed(columns))

    def after(self, steps: np.ndarray, oldest: float, own: Scores | None = None) -> RecentScores:
        """With further visits at some steps, of which completions from ``oldest`` on may still look back.

        ``own`` are scores of the one step, if they are known already.
        """
        new = [step for step in np.unique(steps).tolist() if step >= 0]
        known = sorted({*self.steps, *new})
        known = known[max(bisect_left(known, oldest) - WINDOW, 0) :]
        first = min(steps.min(initial=known[-1] + 1), known[-1] + 1) if known else 0
        found = {step: scores for step, scores in self.found.items() if known[0] <= step < first} if known else {}
        return RecentScores(tuple(known), found if own is None else found | {new[0]: own})

    def plain(self) -> dict[str, np.ndarray]:
        """As arrays, a row for each step that has scores."""
        done = sorted(self.found)
        names = self.found[done[0]] if done else ()
        rows = {name: np.stack([self.found[step][name] for step in done]) for name in names}
        return {"steps": np.array(self.steps, dtype=np.int64), "scored_steps": np.array(done, dtype=np.int64), **rows}

    @classmethod
    def of_plain(cls, plain: Any, baseline: Baseline, visited: Collection[int]) -> RecentScores | None:
        """The inverse of `plain`; None for a baseline that does not learn a bandwidth.

        ``visited`` are the steps whose visits the history has: other steps cannot be scored any more.

        Raises
        ------
        ValueError
            If the arrays do not fit the baseline.
        """
        running = running_of(baseline)
        if running is None:
            return None
        rows = {name: array for name, array in plain.items() if name not in ("steps", "scored_steps")}
        steps, done = (plain[name].tolist() for name in ("steps", "scored_steps"))
        shapes = [{"pace": ()} | {n: a.shape for n, a in running.initial_carry(ways).items()} for ways in (1, 2)]
        fit = not done or {name: array.shape[1:] for name, array in rows.items()} in shapes
        fit &= all(len(array) == len(done) and np.isfinite(array).all() for array in rows.values())
        fit &= all(each == sorted(set(each)) and set(map(type, each)) <= {int} for each in (steps, done))
        if not fit:
            raise ValueError("state: the scores of bandwidths do not fit together; the state was altered.")
        found = {step: {name: array[k] for name, array in rows.items()} for k, step in enumerate(done)}
        return cls(tuple(step for step in steps if step in found or step in visited), found)


def running_of(baseline: Baseline) -> Any:
    """The `RunningScores` of a baseline that learns its bandwidth along a run; None for others."""
    return baseline.selector.running if isinstance(baseline, KernelBaseline) else None


def kept_visits(baseline: Baseline, late: int | None) -> float:
    """How many newest visits of a prompt a history keeps: as many as a value looks back on, for scored steps too."""
    return baseline.max_visits + (0 if late is None or running_of(baseline) is None else WINDOW)


def scores_before(baseline: Baseline, columns: Columns, recent: RecentScores | None, step: int) -> Any:
    """The carry of a baseline that learns its bandwidth, from the `WINDOW` steps with visits before a step.

    Parameters
    ----------
    baseline : Baseline
    columns : Columns
    recent : RecentScores or None
        Of the columns; None if the baseline learns nothing from step to step.
    step : int

    Returns
    -------
    dict of ndarray, or None
    """
    running = running_of(baseline)
    if running is None or recent is None:
        return None
    end = bisect_left(recent.steps, step)
    steps = recent.steps[max(end - WINDOW, 0) : end]
    if np.isfinite(columns.horizon):  # of earlier steps, a part of the past may be gone
        steps = tuple(each for each in steps if each >= _first_allowed(columns))
    for each in steps:
        if each not in recent.found:
            recent.found[each] = _scores_of(cast(KernelBaseline, baseline), columns, each)
    return running.joined([recent.found[each] for each in steps])


def _first_allowed(columns: Columns) -> int:
    return columns.last_step - (columns.late or 0)


def _scores_of(baseline: KernelBaseline, columns: Columns, step: int) -> Scores:
    """The scores of one step, from its visits and those before it.

    Losses are quadratic in the rewards, so the visits' sums give the very losses of the completions; with weights they
    give those of completions with the same sums (`completions_of`).
    """
    size = len(columns.row) + 1
    newest = np.flatnonzero(columns.fields["step"][:size, -1] >= step)
    here = (columns.fields["step"][newest] == step) & (columns.fields["count"][newest] > 0)
    rows = newest[here.any(axis=1)]
    known = visits_known(columns, rows, np.full(len(rows), step), most=baseline.max_visits)
    visits, now = split_now(known)
    now = cast(Visits, now)
    suffice = now.weight is None and baseline.counts_suffice
    groups = counted(now) if suffice else completions_of(_fewer(now))
    if baseline.stepwise:
        keys = list(columns.row)
        groups = replace(groups, prompt_ids=[keys[row - 1] for row in rows.tolist()])
    return baseline.scores(groups, _right_aligned(visits), step=step)


def _right_aligned(visits: Visits) -> Visits:
    """The same visits, in as few columns as there can be: then sums round alike, whatever the history's padding."""
    order = np.argsort(visits.count > 0, axis=-1, kind="stable")
    most = int((visits.count > 0).sum(axis=-1).max())
    held = {field.name: getattr(visits, field.name) for field in fields(visits) if field.name != "state"}
    start = visits.count.shape[-1] - most
    return Visits(**{n: np.take_along_axis(a, order, axis=-1)[:, start:] for n, a in held.items() if a is not None})


def _fewer(visits: Visits) -> Visits:
    """One visit of each prompt, of at most so many completions as it is to count as."""
    held = {field.name: getattr(visits, field.name) for field in fields(visits)}
    share = np.minimum(1.0, MOST_COMPLETIONS / visits.count)
    sums = {name: share * array for name, array in held.items() if array is not None and name != "lag"}
    return Visits(**sums | {"lag": visits.lag, "count": np.round(sums["count"])})
