"""Cross-validation of a bandwidth: predictions one step ahead, and those of KAE itself."""

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


@dataclass(frozen=True)
class LooCv(DataDriven):
    """Predicts every completion by `Kae`: the kernel mean of the past and the rest of its own group.

    The path is the unbiased value MSE of KAE at each bandwidth, as `kaestat.value_risk` reports it for
    ``kae:bandwidth=b``. For a lone completion, which has no rest of its group, it is `ForwardCv`.

    Visits keep only sums. If the completions of a visit have different weights, its sums without one of them are
    unknown, and the visit is predicted from its past alone, as in `ForwardCv`.

    Parameters
    ----------
    grid : sequence of float, optional
        See `DataDriven`.
    """

    name: ClassVar[str] = "loo_cv"

    def statistics(self, smoother: CausalSmoother, kernel: Kernel, grid: np.ndarray) -> np.ndarray:
        scored = scored_visits(smoother)
        columns = [average_within_prompts(leave_one_out_loss(smoother, kernel, b), scored) for b in grid]
        return np.stack(columns, axis=1)


def leave_one_out_loss(smoother: CausalSmoother, kernel: Kernel, bandwidth: float) -> np.ndarray:
    """Unbiased squared error of KAE's values at each visit, shape (P, V).

    With past mass A and carried reward C, ``a = K(0)`` and ``D = A + a (n - 1)``, a completion with deviation
    ``e_g = Z_g - Zbar`` has the value ``v - (a / D) e_g``, where ``v = (C + a (n - 1) Zbar) / D``. So the mean squared
    error is ``(Zbar - v)^2 + (1 + a / D)^2 mean(e_g^2)``, and the unbiased variance is subtracted. Times the visit's
    mean weight; see `LooCv` for visits of unequal weights.
    """
    past_mass, past_carried = smoother.past(kernel, bandwidth)
    count = np.maximum(smoother.count, 1.0)
    own = kernel.at_zero * smoother.mass / count
    mass = past_mass + own * (count - 1)
    known = mass > 0
    value = (past_carried + own * (count - 1) * smoother.mean) / np.where(known, mass, 1.0)
    value = np.where(known, value, smoother.mean_before)
    # A single completion has no deviation to stretch, and its past may weigh less than can be divided by.
    stretch = 1 + own / np.where(known & (count > 1), mass, np.inf)
    loss = (smoother.mean - value) ** 2 + stretch**2 * smoother.scatter - smoother.variance
    loss = smoother.mean_weight * loss
    return (
        np.where(smoother.unequal, forward_loss(smoother, kernel, bandwidth), loss) if smoother.unequal.any() else loss
    )
