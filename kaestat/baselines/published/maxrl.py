"""MaxRL: the group mean, and advantages divided by it (Tajwar et al., 2026)."""

from dataclasses import dataclass

from kaestat.baselines.group_mean import GroupMean
from kaestat.core.arrays import Array, Groups, Visits, ratio

MEAN_EPS = 1e-6  # as in SkyRL


@dataclass(frozen=True)
class MaxRl(GroupMean):
    """Group mean whose `deviation` is the mean itself, which gives rare successes larger advantages.

    Parameters
    ----------
    without_own : bool
        As in `GroupMean`; the published method keeps the own reward in.
    """

    def deviation(self, groups: Groups, visits: Visits, *, step: int | Array) -> Array:
        """Unweighted mean reward of the group plus 0.000001; shape (..., P, 1).

        Raises
        ------
        ValueError
            If a reward is negative: a mean below 0 would turn the gradient round.
        """
        xp = groups.xp
        reward = xp.where(groups.present > 0, groups.reward, xp.zeros_like(groups.reward))
        if bool(xp.any(reward < 0)):
            raise ValueError(
                "rewards: maxrl divides by the group's mean reward, so none may be negative; shift them to begin at 0."
            )
        return ratio(xp.sum(reward, axis=-1, keepdims=True), groups.count, 0.0, xp) + MEAN_EPS
