"""Sequential stopping: more replicates where a Monte Carlo standard error is too large still."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from simulations.harness.performance import Estimate
from simulations.harness.study import Study

GROWTH = 1.5


def is_precise(precision: float | Mapping[str, float], estimates: Iterable[Estimate]) -> bool:
    """Whether every error is within its fraction of the estimate; an error that is unknown (nan) is not."""
    for estimate in estimates:
        fraction = precision.get(estimate.measure) if isinstance(precision, Mapping) else precision
        if fraction is not None and not estimate.mcse <= fraction * abs(estimate.estimate):
            return False
    return True


def next_target(study: Study, replicates: int, limit: int) -> int:
    """Half as many replicates again, in whole shards, and no more than ``limit``."""
    return min(math.ceil(GROWTH * replicates / study.shard) * study.shard, limit)
