"""Forward cross-validation: the bandwidth with the lowest one-step-ahead risk."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors.data_driven import DataDriven, average_within_prompts, scored_visits
from kaestat.smoothing.selectors.smoothing import CausalSmoother


@dataclass(frozen=True)
class ForwardCv(DataDriven):
    """Predicts every visit by the kernel mean of the prompt's earlier visits, without its own group.

    The path is the unbiased value MSE of that prediction: the squared error of the completions, averaged within each
    prompt and then over prompts, minus the within-group reward variance. In a log with one completion per visit that
    variance is unknown, and the path is the MSE plus the reward variance; the choice is the same. If a
    bandwidth reaches no past of a visit, the previous visit predicts it (the limit of a vanishing bandwidth), so all
    bandwidths are scored on the same visits.

    Past-only (prequential) risk suits a baseline whose past outweighs the rest of its group (Dawid, 1984); `LooCv`
    scores KAE itself.

    Parameters
    ----------
    grid : sequence of float, optional
        See `DataDriven`.
    """

    name: ClassVar[str] = "forward_cv"

    def statistics(self, smoother: CausalSmoother, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        scored = scored_visits(smoother)
        columns = [average_within_prompts(forward_loss(smoother, kernel, b), scored) for b in grid]
        return np.stack(columns, axis=1)


def forward_loss(smoother: CausalSmoother, kernel: Kernel, bandwidth: float) -> np.ndarray:
    """Unbiased squared error of the forward prediction of each visit, shape (P, V).

    ``(Zbar - m)^2 - s^2 / n``, which is the completions' mean squared error minus their unbiased variance ``s^2``; for
    a lone completion ``(Z - m)^2``. Times the visit's mean weight.
    """
    error = smoother.mean - smoother.forward(kernel, bandwidth)
    loss = error**2 - smoother.variance / np.where(smoother.present, smoother.count, 1.0)
    return smoother.mean_weight * loss
