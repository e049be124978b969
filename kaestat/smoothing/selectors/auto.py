"""A bandwidth without tuning: candidates mixed by their discounted leave-one-out losses."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.smoothing.selectors.cross_validation import LooCv
from kaestat.smoothing.selectors.data_driven import default_grid
from kaestat.smoothing.selectors.running_scores import SPANS, RunningScores
from kaestat.smoothing.selectors.smoothing import CausalSmoother

MAX_VISITS = 64


@dataclass(frozen=True)
class Auto(LooCv):
    """Mixes the values of many bandwidths by how well each has predicted recent rewards.

    Along a run (`kaestat.AdvantageEstimator`, `kaestat.value_risk`) every step scores the values of all candidates
    *of the baseline itself* on its rewards, leave-one-out, and later steps mix the candidates by these scores:
    see `RunningScores`. The 64 newest visits of each prompt are kept. Shares come from earlier steps alone: nothing
    depends on a completion's own reward.

    For visits without a run (`kaestat.select_bandwidth`, or a baseline called without its carry), it is
    `LooCv` with candidates up to 20 times the span.

    Parameters
    ----------
    grid : sequence of float, optional
        Candidates in steps, increasing. By default they are a factor of 1.6 apart, from one that reaches no visit to 20
        times the span.
    """

    name: ClassVar[str] = "auto"

    @property
    def running(self) -> RunningScores:
        return RunningScores(None if self.grid is None else tuple(self.grid))

    @property
    def max_visits(self) -> float:
        return MAX_VISITS

    def _candidates(self, smoother: CausalSmoother) -> np.ndarray:
        return default_grid(smoother, SPANS) if self.grid is None else np.asarray(self.grid)
