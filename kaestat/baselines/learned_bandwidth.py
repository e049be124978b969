"""A bandwidth learned along the run: values of all candidates, mixed by how well each has predicted rewards so far.

`kaestat.smoothing.selectors.running_scores` has the scores; here they meet the values of a baseline at each bandwidth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kaestat.baselines.base import Served
from kaestat.core.arrays import Array, Groups, Visits
from kaestat.smoothing.selectors.running_scores import Ahead, RunningScores

if TYPE_CHECKING:
    from kaestat.baselines.kernel_mean import KernelBaseline


def serve(baseline: KernelBaseline, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Served:
    """The mixture of the candidates by the scores of earlier steps, and the scores after this one."""
    running = _running(baseline)
    carry = running.initial_carry() if carry is None else carry
    ahead = _ahead(baseline, carry, groups, visits, step)
    of_each = _of_each(baseline, ahead, groups, visits, step)
    after = running.after(carry, ahead, of_each, groups, step=step)
    mixed = groups.xp.sum(ahead.shares * of_each, axis=0)
    return Served(mixed, after, baseline.settled(ahead.pairs()))


def scores(baseline: KernelBaseline, groups: Groups, visits: Visits, *, step: int) -> dict[str, np.ndarray]:
    """Scores of the candidates on one step alone (`RunningScores.of_step`)."""
    running = _running(baseline)
    ahead = _ahead(baseline, running.initial_carry(), groups, visits, step)
    of_each = _of_each(baseline, ahead, groups, visits, step)
    return running.of_step(ahead, of_each, groups, step=step, kernel=baseline.weighting)


def _running(baseline: KernelBaseline) -> RunningScores:
    return cast(RunningScores, baseline.selector.running)


def _ahead(baseline: KernelBaseline, carry: Any, groups: Groups, visits: Visits, step: int | Array) -> Ahead:
    ways, rule = len(baseline.ways(groups, visits)), baseline.rule_of_thumb
    return _running(baseline).ahead(carry, groups, visits, step=step, kernel=baseline.weighting, rule=rule, ways=ways)


def _of_each(baseline: KernelBaseline, ahead: Ahead, groups: Groups, visits: Visits, step: int | Array) -> Array:
    """Values of the candidates, way by way; (K B, ..., P, G)."""
    with_axis = [
        type(part)(**{name: a if name == "prompt_ids" or a is None else a[None] for name, a in vars(part).items()})
        for part in (groups, visits)
    ]
    ways = [way(*with_axis, ahead.bandwidths, step) for way in baseline.ways(groups, visits)]
    return ways[0] if len(ways) == 1 else groups.xp.concat(ways, axis=0)
