"""A local-level Kalman filter across steps, with the noise of a prompt's own past rewards."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Array, Groups, Visits
from kaestat.core.checks import check_number, check_positive

PSEUDO = 2.0  # pseudo-completions in the variance of rewards: those of a uniform prior


@dataclass(frozen=True)
class Kalman(RangedBaseline):
    """Filtered value of a random walk observed through group means.

    ``V_t = V_{t-1} + noise of variance drift_variance`` per step, and a visit of n completions observes V with
    variance ``s2 / n``. The reward variance s2 of a prompt is the variance of its past rewards and two
    pseudo-completions, of which the share ``initial_mean`` succeeded. With m and q the mean and the mean square of all
    these, ``s2 = q - m^2``, which is ``m (1 - m)`` for rewards 0 and 1 (s2 is kept above 1e-4). ``reward_variance``,
    if given, replaces it. So gains do not depend on the current rewards, the value is linear in them, and
    the completion itself is left out.

    Parameters
    ----------
    drift_variance : float
        Variance of the value's change per step.
    initial_mean, initial_variance : float
        The prior before the first visit; the default is the uniform distribution's.
    reward_variance : float, optional
        Known variance of a single reward.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("drift_variance", self.drift_variance, allow_zero=True)
        check_number("initial_mean", self.initial_mean)
        check_positive("initial_variance", self.initial_variance)
        if self.reward_variance is not None:
            check_positive("reward_variance", self.reward_variance)

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        groups, visits = self.to_unit(groups, visits)
        self.check_in_unit("kalman's prior and drift are of success rates", groups, visits, warn=True)
        mean, variance, noise = self._predicted(groups, visits)
        others_mass, others_carried = groups.others()
        gain = variance / (variance * others_mass + noise)  # per completion
        return self.from_unit(mean + gain * (others_carried - others_mass * mean) + groups.xp.zeros_like(groups.reward))

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        _, variance, noise = self._predicted(*self.to_unit(groups, visits))
        return noise / variance

    def _noise(self, groups: Groups, visits: Visits) -> Array:
        """Variance of a reward of each prompt, (..., P, 1)."""
        xp = groups.xp
        if self.reward_variance is not None:
            return xp.full_like(groups.reward[..., :1], self.reward_variance)
        successes = PSEUDO * self.initial_mean
        count = xp.sum(visits.count, axis=-1, keepdims=True) + PSEUDO
        mean = (xp.sum(visits.total, axis=-1, keepdims=True) + successes) / count
        return xp.clip((xp.sum(visits.total_sq, axis=-1, keepdims=True) + successes) / count - mean**2, 1e-4, None)

    def _predicted(self, groups: Groups, visits: Visits) -> tuple[Array, Array, Array]:
        """Predicted mean and variance at the current step, and the variance of a reward; (..., P, 1) each."""
        xp, noise = groups.xp, self._noise(groups, visits)
        mean, variance = xp.full_like(noise, self.initial_mean), xp.full_like(noise, self.initial_variance)
        lag, count, total = xp.broadcast_arrays(visits.lag, visits.count, visits.total)
        lag = xp.where(count > 0, lag, xp.zeros_like(lag))
        newest = xp.max(lag, axis=-1, keepdims=True) if lag.shape[-1] else 0.0 * noise  # so far; the prior is of then
        for k in range(lag.shape[-1]):
            visited, n = count[..., k : k + 1] > 0, count[..., k : k + 1]
            before, newest = newest, xp.where(visited, lag[..., k : k + 1], newest)
            variance = variance + self.drift_variance * (before - newest)
            n = xp.where(visited, n, xp.ones_like(n))
            gain = variance / (variance + xp.where(visited, noise / n, math.inf))  # padding has infinite noise
            mean, variance = mean + gain * (total[..., k : k + 1] / n - mean), variance - gain * variance
        return mean, variance + self.drift_variance * newest, noise
