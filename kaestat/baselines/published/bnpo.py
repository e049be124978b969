"""BNPO: the group mean, and advantages divided by a Beta density fitted to the batch (Xiao et al., 2025)."""

import warnings
from dataclasses import dataclass

from kaestat.baselines.group_mean import GroupMean
from kaestat.core.arrays import Array, Groups, Visits, log_beta, ratio

LEAST_DENSITY = 1e-6  # the authors' code multiplies by at most 1e6


@dataclass(frozen=True)
class Bnpo(GroupMean):
    """Group mean with a `deviation`: a Beta density at that mean, fitted to the means of all groups of the step.

    Parameters
    ----------
    without_own : bool
        As in `GroupMean`; the published method keeps the own reward in.
    """

    def deviation(self, groups: Groups, visits: Visits, *, step: int | Array) -> Array:
        """Density at the group's unweighted mean p of a Beta distribution, at least 0.000001; shape (..., P, 1).

        The density is 1 if all means are equal, or there is one group; the method's page has its parameters.

        Raises
        ------
        ValueError
            If a reward is below 0 or above 1.

        Warns
        -----
        UserWarning
            If there is only one group: advantages are then not divided.
        """
        xp = groups.xp
        if groups.reward.shape[-2] == 1:
            warnings.warn(
                "bnpo: a single group has no distribution of success rates over groups, so its advantages are those "
                "of dr_grpo. Give all groups of a step in one call; a trainer that scores groups one by one cannot.",
                stacklevel=2,
            )
        reward = xp.where(groups.present > 0, groups.reward, xp.zeros_like(groups.reward))
        if bool(xp.any((reward < 0) | (reward > 1))):
            raise ValueError(
                "rewards: bnpo treats them as successes, so they must lie between 0 and 1; shift and scale them."
            )
        p = ratio(xp.sum(reward, axis=-1, keepdims=True), groups.count, 0.0, xp)
        alpha, beta = _fitted(groups, p)
        tiny = float(xp.finfo(p.dtype).tiny)  # groups of equal rewards have advantage 0, whatever the density
        success, failure = (xp.log(xp.clip(share, tiny, None)) for share in (p, 1 - p))
        log_density = (alpha - 1) * success + (beta - 1) * failure - log_beta(alpha, beta)
        return xp.clip(xp.exp(log_density), LEAST_DENSITY, None)


def _fitted(groups: Groups, p: Array) -> tuple[Array, Array]:
    """Parameters of the density, (..., 1, 1) each."""
    xp = groups.xp
    there = xp.astype(groups.count > 0, p.dtype)
    n = groups.pooled(there)
    mean = ratio(groups.pooled(there * p), n, 0.0, xp)
    variance = ratio(groups.pooled(there * (p - mean) ** 2), n - 1, 0.0, xp)
    concentration = ratio(mean * (1 - mean), variance, 1.0, xp) - 1
    return tuple(xp.clip(1 + concentration * share / 3, 1.0, None) for share in (mean, 1 - mean))
