"""Declare a Monte Carlo study, run it in parallel, resume it, replay any replicate, and report with standard errors.

How to write a study: a file in ``simulations/studies`` that defines ``STUDY``, a `Study`. Its heart is one function,
``simulate(cell, streams)``, which computes all replicates that ``streams`` stand for at once and returns columns of one
number per replicate. The page "A study" of the documentation writes one.

What the harness asks of ``simulate``:

- It is a pure function at the top level of its module: all randomness comes from ``streams``, nothing is kept.
- It does not mix replicates: a replicate computed alone gives the numbers it has among others. (A mean over the first
  axis breaks that; ``tests/simulations/harness/test_contract.py`` checks every study.)
- Draws have names. Methods that are to be compared use the same draw: common random numbers within a cell.
- A column that is not finite, or an exception, is a failure: it is recorded with its seed and trace, the cell is left
  out of the summary, and everything else goes on.

What the harness gives in return: the same bits from one worker or many, in whatever order, for whatever
subset of the cells, interrupted and resumed, whatever was computed before; a Monte Carlo standard error beside every
number; and no mixing of results of different code, seeds or library versions, which lie in folders of their own.

Speed: vectorise over replicates, and keep the completions of a group away from the last axis (NumPy adds short rows
slowly): draw ``streams.uniform("rewards", V, G, P)``, sum over axis -2. A shard should take 0.1 to 5 s: it is what a
crash loses.
"""

from simulations.harness.execution import WorkerDied
from simulations.harness.performance import (
    Estimate,
    average,
    empirical_se,
    proportion,
    ratio_of_means,
    reduction,
    variance,
)
from simulations.harness.randomness import Streams
from simulations.harness.runner import RunSettings, StudyResult, replay, run
from simulations.harness.store import Shard, Store
from simulations.harness.study import Cell, Samples, Study, grid

__all__ = [
    "Cell",
    "Estimate",
    "RunSettings",
    "Samples",
    "Shard",
    "Store",
    "Streams",
    "Study",
    "StudyResult",
    "WorkerDied",
    "average",
    "empirical_se",
    "grid",
    "proportion",
    "ratio_of_means",
    "reduction",
    "replay",
    "run",
    "variance",
]
