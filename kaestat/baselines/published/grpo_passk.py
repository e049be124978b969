"""GRPO for pass@k: only a group's best completion has an advantage, over the second best (Tang et al., 2025)."""

from dataclasses import dataclass

from kaestat.baselines.published.order_statistic import OrderStatistic
from kaestat.core.arrays import Array, Groups


@dataclass(frozen=True)
class GrpoPassk(OrderStatistic):
    """Best reward of the other completions, or the completion's own if that is lower.

    So the best completion has the advantage ``r_max - r_second``, and all others have 0.

    Parameters
    ----------
    without_own : bool
        Best of the others for every completion; the published method gives the rest of the group their own rewards.
    """

    def rank(self, count: Array) -> Array:
        return count - 1

    def bounds(self, groups: Groups) -> tuple[Array, Array]:
        xp = groups.xp
        infinite = xp.full_like(groups.reward, xp.inf)
        return -infinite, xp.where(groups.count > 1, self.of_others(groups), infinite)
