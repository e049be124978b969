"""MC-GRPO: the median of the group, divided by its median absolute deviation (Kim, 2026)."""

from dataclasses import dataclass, replace

from kaestat.baselines.published.order_statistic import OrderStatistic, at_rank, in_order
from kaestat.core.arrays import Array, Groups, Visits

MAD_EPS = 1e-3  # as in the author's code


@dataclass(frozen=True)
class McGrpo(OrderStatistic):
    """Median reward of the group, for groups of G + 1 completions; the update leaves out the median one.

    For an even number it is the lower of the two middle rewards, as in ``torch.median``. The completion whose reward is
    the median, `pivot`, has advantage 0, and so do ties.

    Parameters
    ----------
    without_own : bool
        Median of the other completions; the published method keeps the own in.
    """

    def rank(self, count: Array) -> Array:
        return (count - 1) // 2

    def deviation(self, groups: Groups, visits: Visits, *, step: int | Array) -> Array:
        """Median absolute deviation of the group from its median, plus 0.001; shape (..., P, 1)."""
        away = replace(groups, reward=groups.xp.abs(groups.reward - self.median(groups)))
        return self.median(away) + MAD_EPS

    def median(self, groups: Groups) -> Array:
        """Median reward of each whole group, (..., P, 1); 0 for an empty one."""
        found = at_rank(in_order(groups), self.rank(groups.count))
        return groups.xp.where(groups.count > 0, found, groups.xp.zeros_like(found))

    def pivot(self, groups: Groups) -> Array:
        """The completion of each group that the update leaves out: True for the first whose reward is the median."""
        xp = groups.xp
        tied = groups.present * xp.astype(groups.reward == self.median(groups), groups.reward.dtype)
        return (tied > 0) & (xp.cumulative_sum(tied, axis=-1) == 1)
