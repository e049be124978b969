"""SPO: a Beta-Bernoulli tracker with forgetting for each prompt (Xu and Ding, 2025)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Array, Groups, Visits, namespace
from kaestat.core.checks import check_positive, check_share

# Of the adaptive forgetting factor, as in the paper
HALF_LIFE = 0.06  # divergence (nats) that halves the weight of the past
LEAST_AND_MOST = 0.875, 0.96


@dataclass(frozen=True)
class Spo(RangedBaseline):
    """``v = a / (a + b)`` from the past visits alone; then ``a <- rho a + r``, ``b <- rho b + 1 - r``.

    A visit with several completions forgets once and adds them all. Rewards must lie in [0, 1], or in the given range.
    The method whitens its advantages over the batch unless you choose another scaling.

    Parameters
    ----------
    rho : float, optional
        Constant forgetting factor in (0, 1]. None makes it adaptive: ``2^(-D / 0.06)`` clipped to [0.875, 0.96],
        with D the policy divergence (nats) since the prompt's previous visit, given with the step (``divergence``);
        a step without it counts as D = 0.
    prior_mean, prior_count : float
        The tracker starts at ``a = prior_mean * prior_count``.
    low, high : float
        Range of the rewards, which are mapped from it to [0, 1]; see `RangedBaseline`.

    Raises
    ------
    ValueError
        If a factor lies outside (0, 1], or a reward outside the range.
    """

    shrinks: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

    rho: float | None = None
    prior_mean: float = 0.5
    prior_count: float = 8.0  # 1 / (1 - 0.875), as in the reference

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rho is not None:
            check_share("rho", self.rho)
        check_share("prior_mean", self.prior_mean, allow_zero=True)
        check_positive("prior_count", self.prior_count)

    @property
    def in_order_only(self) -> bool:
        return self.takes_divergence  # between visits: one that comes in between would split it

    @property
    def takes_divergence(self) -> bool:
        return self.rho is None

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        groups, visits = self.to_unit(groups, visits)
        self.check_in_unit("spo tracks success probabilities", groups, visits)
        successes, count = self._tracked(visits)
        return self.from_unit(successes / count + groups.xp.zeros_like(groups.reward))

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        return self._tracked(visits)[1] + groups.xp.zeros_like(groups.reward[..., :1])

    def _tracked(self, visits: Visits) -> tuple[Array, Array]:
        """The tracker's a, and a + b; (..., P, 1) each."""
        xp, count = namespace(visits.count), self.prior_count
        # log of the product of the factors applied after each visit: a reversed cumulative sum, itself excluded
        log_rho = self._log_rho(visits) * xp.astype(visits.count > 0, visits.count.dtype)
        whole = xp.sum(log_rho, axis=-1, keepdims=True)
        left, start = xp.exp(whole - xp.cumulative_sum(log_rho, axis=-1)), xp.exp(whole)
        successes = start * (self.prior_mean * count) + xp.sum(left * visits.total, axis=-1, keepdims=True)
        return successes, start * count + xp.sum(left * visits.count, axis=-1, keepdims=True)

    def _log_rho(self, visits: Visits) -> Array:
        xp = namespace(visits.count)
        if self.rho is not None or visits.divergence is None:
            return xp.full_like(visits.count, math.log(LEAST_AND_MOST[1] if self.rho is None else self.rho))
        exponent = -math.log(2) / HALF_LIFE * visits.divergence
        return xp.clip(exponent, *map(math.log, LEAST_AND_MOST))
