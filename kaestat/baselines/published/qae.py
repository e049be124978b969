"""QAE: a quantile of the group's rewards instead of their mean (Wu et al., 2025)."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

from kaestat.baselines.published.order_statistic import OrderStatistic
from kaestat.core.arrays import Array, namespace
from kaestat.core.checks import check_share


@dataclass(frozen=True)
class Qae(OrderStatistic):
    """The ``quantile``-quantile of the group's rewards: the lowest reward that a share ``quantile`` does not exceed.

    For rewards 0 and 1 and a success rate p in the group, it is 0 if ``p <= 1 - quantile``: only
    successes then have an advantage. Otherwise it is 1, and only failures have one.

    Parameters
    ----------
    without_own : bool
        Quantile of the other completions; the published method keeps the own in.
    quantile : float
        The K of the paper, in (0, 1].
    """

    _: KW_ONLY
    quantile: float = 0.4

    def __post_init__(self) -> None:
        check_share("quantile", self.quantile)

    def rank(self, count: Array) -> Array:
        xp: Any = namespace(count)
        # 0.07 * 100 is a little more than 7.
        return xp.clip(xp.ceil(self.quantile * count - 1e-9) - 1, 0.0, None)
