"""A local-level Kalman filter across steps, with the noise of a prompt's own past rewards."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Array, Groups, Visits, namespace
from kaestat.core.checks import check_number, check_positive

FAINT = 1e-12  # weight of a visit next to that of the newest
LARGEST_VARIANCE = 0.25  # of rewards in [0, 1]
MOST_VISITS = 2**31


@dataclass(frozen=True)
class Kalman(RangedBaseline):
    """Filtered value of a random walk observed through group means.

    ``V_t = V_{t-1} + noise of variance drift_variance`` per step, and a visit of n completions observes V with
    variance ``s2 / n``. The reward variance s2 of a prompt is the variance of its past rewards and ``variance_count``
    pseudo-completions, of which the share ``initial_mean`` succeeded. With m and q the mean and the mean square of all
    these, ``s2 = q - m^2``, which is ``m (1 - m)`` for rewards 0 and 1 (s2 is kept above 1e-4). ``reward_variance``,
    if given, replaces it. So gains do not depend on the current rewards, the value is linear in them, and
    the completion itself is left out.

    With constant group size and one visit per step the gain converges, and the filter is the exponential kernel:
    ``rho = 1 - K`` with ``K^2 / (1 - K) = drift_variance * n / s2``. No visit is forgotten more slowly than at n = 1
    and the largest s2 (1/4, or the number given), so visits whose weight falls to 1e-12 in that case are dropped: with
    the default parameters, all but the newest 1,002. s2 uses the rewards of the remaining visits.

    Parameters
    ----------
    drift_variance : float
        Variance of the value's change per step.
    initial_mean, initial_variance : float
        The prior before the first visit; the default is the uniform distribution's.
    reward_variance : float, optional
        Known variance of a single reward.
    variance_count : float
        Number of pseudo-completions in the plug-in variance.
    low, high : float
        Range of the rewards; see `RangedBaseline`. Rewards outside cause a warning. All other parameters are for
        rewards mapped to [0, 1].
    """

    shrinks: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

    drift_variance: float = 2e-4
    initial_mean: float = 0.5
    initial_variance: float = 1 / 12
    reward_variance: float | None = None
    variance_count: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("drift_variance", self.drift_variance, allow_zero=True)
        check_number("initial_mean", self.initial_mean)
        check_positive("initial_variance", self.initial_variance)
        check_positive("variance_count", self.variance_count)
        if self.reward_variance is not None:
            check_positive("reward_variance", self.reward_variance)

    @property
    def max_visits(self) -> float:
        ratio = self.drift_variance / (LARGEST_VARIANCE if self.reward_variance is None else self.reward_variance)
        gain = (math.sqrt(ratio * (ratio + 4)) - ratio) / 2  # K^2 / (1 - K) = ratio
        most = (
            math.log(FAINT / 2) / math.log1p(-gain) if 0 < gain < 1 else math.inf
        )  # the gain starts lower: twice 1e-12
        return math.ceil(most) if most < MOST_VISITS else math.inf

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp = groups.xp
        groups, visits = self.to_unit(groups, visits)
        self.check_in_unit("kalman's prior and drift are of success rates", groups, visits, warn=True)
        noise = self._reward_variance(groups, visits)
        mean, variance = self._predict(visits, noise)
        others_mass, others_carried = groups.others()
        gain = variance / (variance * others_mass + noise)  # per completion
        return self.from_unit(mean + gain * (others_carried - others_mass * mean) + xp.zeros_like(groups.reward))

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        groups, visits = self.to_unit(groups, visits)
        noise = self._reward_variance(groups, visits)
        return noise / self._predict(visits, noise)[1]

    def _reward_variance(self, groups: Groups, visits: Visits) -> Array:
        xp = groups.xp
        if self.reward_variance is not None:
            return xp.full_like(groups.reward[..., :1], self.reward_variance)
        successes = self.variance_count * self.initial_mean
        count = xp.sum(visits.count, axis=-1, keepdims=True) + self.variance_count
        mean = (xp.sum(visits.total, axis=-1, keepdims=True) + successes) / count
        mean_square = (xp.sum(visits.total_sq, axis=-1, keepdims=True) + successes) / count
        return xp.clip(mean_square - mean**2, 1e-4, None)

    def _predict(self, visits: Visits, noise: Array) -> tuple[Array, Array]:
        """Predicted mean and variance at the current step, both (..., P, 1)."""
        xp = namespace(visits.lag)
        mean, variance = xp.full_like(noise, self.initial_mean), xp.full_like(noise, self.initial_variance)
        if visits.lag.shape[-1] == 0:
            return mean, variance
        # Visits on the first axis, oldest first. Padding, which may stand anywhere, has infinite noise.
        columns = xp.broadcast_arrays(visits.lag, visits.count, visits.total)  # replicates may share lags and counts
        lag, count, total = (xp.moveaxis(column, -1, 0) for column in columns)
        visited = count > 0
        count = xp.where(visited, count, xp.ones_like(count))
        observed, noise = total / count, noise[..., 0]
        lag = xp.where(visited, lag, xp.zeros_like(lag))
        newest = xp.max(lag, axis=0)  # so far: the first visit starts at the prior itself
        mean, variance = mean[..., 0], variance[..., 0]
        for place in range(lag.shape[0]):
            before, newest = newest, xp.where(visited[place, ...], lag[place, ...], newest)
            variance = variance + self.drift_variance * (before - newest)
            gain = variance / (variance + xp.where(visited[place, ...], noise / count[place, ...], math.inf))
            mean = mean + gain * (observed[place, ...] - mean)
            variance = variance - gain * variance
        return mean[..., None], (variance + self.drift_variance * newest)[..., None]
