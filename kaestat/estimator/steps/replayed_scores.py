"""Scores of candidate bandwidths from the given visits, if they cannot be kept from step to step."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.core.arrays import Visits
from kaestat.estimator.steps.visit_completions import completions_of

ROUNDS = 8  # newest visits that are scored; the discount leaves less than 0.7^8 = 6 % of older ones
MOST_PROMPTS = 256  # of a step, whose visits are scored
MOST_COMPLETIONS = 32  # that a visit counts as


def replayed_scores(baseline: Baseline, visits: Visits, step: int, keys: Sequence[Hashable]) -> Any:
    """The carry of a baseline that learns its bandwidth, as if only the given prompts existed.

    The newest visits of the prompts are served one after another, oldest first, each from those before it, as along a
    run (`kaestat.smoothing.selectors.running_scores.RunningScores`), with completions of its sums (`completions_of`):
    losses are quadratic in the rewards, so without weights they equal the losses of the actual completions. The result
    depends only on the visits, not on the order in which they came. ``visits``, (P, V), are of lag 1 and more.
    ``outside_value`` looks up a value for each of the step's ``keys``: a mapping gives today's, a function is asked for
    the step of the visit. None for baselines that do not learn from step to step.
    """
    running = baseline.selector.running if isinstance(baseline, KernelBaseline) else None
    if running is None:
        return None
    carry: Any = running.initial_carry()
    with_past = np.flatnonzero((visits.count > 0).sum(axis=-1) > 1)
    rows = with_past[:: max(1, -(-len(with_past) // MOST_PROMPTS))]
    if not len(rows):
        return carry
    visits = _right_aligned(visits, rows)
    width, now = visits.count.shape[-1], 0
    for column in range(max(width - ROUNDS, 0), width):
        here = np.flatnonzero(visits.count[:, column] > 0)
        if not len(here):
            continue
        lag = visits.lag[here, column]
        now = max(now, step - int(np.median(lag)))
        groups = replace(
            completions_of(_scored(visits, here, column)), prompt_ids=[keys[row] for row in rows[here].tolist()]
        )
        carry = baseline.serve(groups, _before(visits, here, column), step=now, carry=carry).carry
    return carry


def _right_aligned(visits: Visits, rows: np.ndarray) -> Visits:
    """Those of some prompts, the newest in the last column."""
    order = np.argsort(visits.count[rows] > 0, axis=-1, kind="stable")
    most = int((visits.count[rows] > 0).sum(axis=-1).max())
    held = {field.name: getattr(visits, field.name) for field in fields(visits) if field.name != "state"}
    return Visits(
        **{n: np.take_along_axis(a[rows], order, axis=-1)[:, -most:] for n, a in held.items() if a is not None}
    )


def _before(visits: Visits, rows: np.ndarray, column: int) -> Visits:
    """The visits before one, as seen from it."""
    held = {field.name: getattr(visits, field.name) for field in fields(visits)}
    past = {name: array[rows, :column] for name, array in held.items() if array is not None}
    return Visits(**past | {"lag": past["lag"] - visits.lag[rows, column][:, None]})


def _scored(visits: Visits, rows: np.ndarray, column: int) -> Visits:
    """One visit of each prompt, of at most so many completions as it is to count as."""
    held = {field.name: getattr(visits, field.name) for field in fields(visits)}
    one = {name: array[rows, column][:, None] for name, array in held.items() if array is not None}
    share = np.minimum(1.0, MOST_COMPLETIONS / one["count"])
    return Visits(
        **{
            name: sums if name == "lag" else np.round(share * sums) if name == "count" else share * sums
            for name, sums in one.items()
        }
    )
