"""Declare a Monte Carlo study, run it in parallel, resume it, replay any replicate, and report with standard errors."""

from simulations.harness.performance import Estimate, average, paired_difference, ratio_of_means, reduction, variance
from simulations.harness.randomness import Streams
from simulations.harness.runner import RunSettings, replay, run
from simulations.harness.store import Store
from simulations.harness.study import Cell, Samples, Study

__all__ = [
    "Cell",
    "Estimate",
    "RunSettings",
    "Samples",
    "Store",
    "Streams",
    "Study",
    "average",
    "paired_difference",
    "ratio_of_means",
    "reduction",
    "replay",
    "run",
    "variance",
]
