"""SPO: a Beta-Bernoulli tracker with forgetting for each prompt (Xu and Ding, 2025)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Array, Groups, Visits, namespace
from kaestat.core.checks import check_positive, check_share


@dataclass(frozen=True)
class Spo(RangedBaseline):
    """``v = a / (a + b)`` from the past visits alone; then ``a <- rho a + r``, ``b <- rho b + 1 - r``.

    A visit with several completions forgets once and adds them all. Rewards must lie in [0, 1], or in the given range.
    The method whitens its advantages over the batch unless you choose another scaling.

    Parameters
    ----------
    rho : float, optional
        Constant forgetting factor in (0, 1]. None makes it adaptive: ``2^(-D / half_life)`` clipped to
        [rho_min, rho_max], with D the policy divergence since the prompt's previous visit, given with the
        step (``divergence``); a step without it counts as D = 0.
    half_life : float
        Divergence (nats) that halves the weight of the past.
    rho_min, rho_max : float
        Bounds of the adaptive factor.
    prior_mean, prior_count : float, optional
        The tracker starts at ``a = prior_mean * prior_count``; the count defaults to 1 / (1 - rho_min), as in the
        reference.
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
    half_life: float = 0.06
    rho_min: float = 0.875
    rho_max: float = 0.96
    prior_mean: float = 0.5
    prior_count: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rho_min", "rho_max", *(() if self.rho is None else ("rho",))):
            check_share(name, getattr(self, name))
        if self.rho_min > self.rho_max:
            raise ValueError(f"rho_min ({self.rho_min}) must not exceed rho_max ({self.rho_max}).")
        check_share("prior_mean", self.prior_mean, allow_zero=True)
        check_positive("half_life", self.half_life)
        if self.prior_count is not None:
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
        if count is None:
            count = 1 / (1 - self.rho_min) if self.rho_min < 1 else 1.0
        # log of the product of the factors applied after each visit: a reversed cumulative sum, itself excluded
        log_rho = self._log_rho(visits) * xp.astype(visits.count > 0, visits.count.dtype)
        whole = xp.sum(log_rho, axis=-1, keepdims=True)
        left, start = xp.exp(whole - xp.cumulative_sum(log_rho, axis=-1)), xp.exp(whole)
        successes = start * (self.prior_mean * count) + xp.sum(left * visits.total, axis=-1, keepdims=True)
        return successes, start * count + xp.sum(left * visits.count, axis=-1, keepdims=True)

    def _log_rho(self, visits: Visits) -> Array:
        xp = namespace(visits.count)
        if self.rho is not None or visits.divergence is None:
            return xp.full_like(visits.count, math.log(self.rho_max if self.rho is None else self.rho))
        exponent = -math.log(2) / self.half_life * visits.divergence
        return xp.clip(exponent, math.log(self.rho_min), math.log(self.rho_max))
