"""Online aggregation of bandwidths by their past risk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.core.arrays import Array, Visits
from kaestat.core.checks import check_positive
from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.data_driven import DataDriven, per_index, smoothers
from kaestat.smoothing.selectors.smoothing import CausalSmoother


@dataclass(frozen=True)
class Aggregated(DataDriven):
    """Mixes the values of all bandwidths, with shares ``exp(-eta * cumulated loss)`` (Vovk, 1990).

    The loss of a bandwidth is the squared error of the one-step-ahead prediction of each past visit's mean reward, as
    in `ForwardCv`, added over all past visits of the prompts of the step. The learning rate is
    ``eta = 1 / (2 reward_range^2)``, for which the squared loss is exp-concave. So, on one prompt and a fixed grid, the
    mixed one-step-ahead predictions lose at most ``2 reward_range^2 log(size of the grid)`` more in total than those of
    the best bandwidth, whatever the rewards (Kivinen and Warmuth, 1999). Prompts served at once pool their evidence
    at the same rate; there the bound does not hold, since their losses come in together.

    For a whole log, the bandwidth is the one of largest share after the last visit, and the path is the loss per visit
    minus the within-group noise: the value MSE averaged over visits.

    Parameters
    ----------
    grid : sequence of float, optional
        See `DataDriven`.
    reward_range : float
        Largest minus smallest possible reward.
    """

    reward_range: float = 1.0
    name: ClassVar[str] = "aggregated"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "reward_range", check_positive("reward_range", self.reward_range))

    @property
    def learning_rate(self) -> float:
        """``1 / (2 reward_range^2)``."""
        return 1 / (2 * self.reward_range**2)

    def resolve(
        self, visits: Visits, current_count: Array, *, step: int | Array, kernel: Kernel
    ) -> list[tuple[Array | float, Array | float]]:
        past, leading = smoothers(visits)
        mixtures = [self._mixture(smoother, kernel) for smoother in past]
        size = max(len(grid) for grid, _ in mixtures)
        grids = np.array([np.pad(grid, (0, size - len(grid)), mode="edge") for grid, _ in mixtures])
        shares = np.array([np.pad(share, (0, size - len(share))) for _, share in mixtures])
        return [
            (per_index(grids[:, k], leading, visits), per_index(shares[:, k], leading, visits)) for k in range(size)
        ]

    def statistics(self, smoother: CausalSmoother, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        loss = cumulated_loss(smoother, kernel, grid)
        noise = smoother.mean_weight * smoother.variance / np.maximum(smoother.count, 1)
        noise = np.where(smoother.has_past, noise, 0.0).sum(axis=1)
        return np.column_stack([loss - noise[:, None], smoother.has_past.sum(axis=1)])

    def risk(self, mean: np.ndarray, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        return mean[..., :-1] / np.maximum(mean[..., -1:], np.finfo(float).tiny)

    def _mixture(self, smoother: CausalSmoother, kernel: Kernel) -> tuple[np.ndarray, np.ndarray]:
        """Candidates and shares."""
        if not smoother.has_past.any():
            return np.array([self._fallback()]), np.ones(1)
        grid = self._candidates(smoother)
        loss = cumulated_loss(smoother, kernel, grid).sum(axis=0)
        share = np.exp(-self.learning_rate * (loss - loss.min()))
        return grid, share / share.sum()


def cumulated_loss(smoother: CausalSmoother, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
    """Squared one-step-ahead errors of the visit means, added over each prompt's visits; (P, B)."""
    errors = (smoother.mean - smoother.forward(kernel, b) for b in grid)
    weight = np.where(smoother.has_past, smoother.mean_weight, 0.0)
    return np.stack([(weight * error**2).sum(axis=1) for error in errors], axis=1)
