"""The base class of bandwidth selectors, and their result.

A selector works on the past visits alone, never on the current rewards, so a baseline that uses it stays
leave-one-out. The same object serves one training step (`resolve`) and a whole log (`select`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kaestat.core.arrays import Array, Visits
from kaestat.smoothing.kernels import Kernel

if TYPE_CHECKING:
    import pandas as pd

    from kaestat.smoothing.selectors.running_scores import RunningScores

PATH_COLUMNS = ["bandwidth", "risk", "se", "difference_se"]


@dataclass(frozen=True, eq=False)
class BandwidthSelection:
    """A selected bandwidth with the evidence for it.

    Attributes
    ----------
    bandwidth : float
        In steps (or visits, if the log has no steps: see ``time_axis``).
    se : float
        Standard error of ``bandwidth`` (bootstrap over prompts); NaN if the selector does not depend on the data.
    path : pandas.DataFrame
        One row per candidate: ``bandwidth, risk, se`` (of the risk, by the same bootstrap), and ``difference_se``, the
        standard error of the paired difference to the candidate of lowest risk. Empty for selectors without a path.
    selector : str
        Name of the selector.
    time_axis : {"step", "visit"}
        Unit of the bandwidth.
    """

    bandwidth: float
    se: float
    path: pd.DataFrame
    selector: str
    time_axis: str = "step"


class Selector(ABC):
    """Chooses a bandwidth from past visits."""

    name: ClassVar[str]

    @property
    def running(self) -> RunningScores | None:
        """The scores of the candidates kept from step to step; None for selectors that use only a step's visits."""
        return None

    @property
    def max_visits(self) -> float:
        """Largest number of a prompt's newest visits that it uses."""
        return math.inf

    @property
    def pools_prompts(self) -> bool:
        """Whether a prompt's bandwidth depends on the rewards of others."""
        return False

    @property
    def memory(self) -> float:
        """Largest bandwidth that it can return, in steps; ``inf`` if it needs the whole past."""
        return math.inf

    @abstractmethod
    def resolve(
        self, visits: Visits, current_count: Array, *, step: int | Array, kernel: Kernel
    ) -> list[tuple[Array | float, Array | float]]:
        """Bandwidths and the shares of their values in the mixture; most selectors return one with share 1.

        Parameters
        ----------
        visits : Visits
            Past visits, shape (..., P, V).
        current_count : array, shape (..., P, 1)
            Completions of each prompt at this step.
        step : int, or array broadcastable to (..., 1, 1)
            Current step.
        kernel : Kernel
            The kernel that will use the bandwidth.

        Returns
        -------
        list of (bandwidth, share)
            Each broadcastable to (..., P, 1); bandwidths positive, shares sum to 1.
        """

    @abstractmethod
    def select(self, series: Visits, *, kernel: Kernel, seed: int = 0, n_boot: int = 200) -> BandwidthSelection:
        """The selected bandwidth for a whole log.

        Parameters
        ----------
        series : Visits
            Every visit of every prompt, NumPy arrays of shape (P, V); ``lag`` counts back from one common point in
            time.
        kernel : Kernel
            The kernel that will use the bandwidth.
        seed : int
            Seed of the bootstrap over prompts.
        n_boot : int
            Number of bootstrap draws; below 2 the standard errors are NaN.

        Raises
        ------
        ValueError
            If the bandwidth depends on rewards and no prompt has two visits.
        """


@dataclass(frozen=True)
class FormulaSelector(Selector):
    """A selector that needs no rewards, only counts and the step."""

    def select(self, series: Visits, *, kernel: Kernel, seed: int = 0, n_boot: int = 200) -> BandwidthSelection:
        import numpy as np
        import pandas as pd

        seen = series.count > 0
        last = np.min(np.where(seen, series.lag, math.inf))
        first = np.max(np.where(seen, series.lag, -math.inf))
        elapsed = max(float(first - last), 1.0)
        count = np.sum(series.count, axis=-1, keepdims=True)
        resolved = self.resolve(series, np.zeros_like(count), step=elapsed, kernel=kernel)
        bandwidth = float(np.median(np.asarray(resolved[0][0], dtype=float)))
        path = pd.DataFrame(columns=PATH_COLUMNS, dtype=float)
        return BandwidthSelection(bandwidth=bandwidth, se=math.nan, path=path, selector=self.name)
