"""KAE with empirical Bayes across prompts: a level shrunk towards the others', and the drift that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from array_api_compat import array_namespace

from kaestat.arrays import Array, Groups, Visits, ratio
from kaestat.baselines.kae import KernelBaseline, check_cold_start

MIN_OTHERS = 5  # degrees of freedom given up in tau^2: with this many other prompts or fewer, no shrinkage
DRIFT_Z2 = 4.0  # squared z-score that the common drift must exceed: two standard errors


@dataclass(frozen=True)
class KaeEb(KernelBaseline):
    """Kernel mean of the prompt, moved along the drift of the other prompts and shrunk towards their mean.

    ``KAE_g`` has two errors, and the other prompts of the step say something about both.

    *Variance.* A kernel mean of effective size ``n = (sum w W)^2 / sum w^2 W^2`` has variance ``sigma^2 / n`` around
    the prompt's value, and values spread over prompts with variance ``tau^2``. The best linear estimator shrinks
    towards the other prompts' mean by ``lambda = (sigma^2 / n) / (sigma^2 / n + tau^2)``; for Beta-distributed
    success rates this is the posterior mean. With m_k and q_k the kernel means of Z and Z^2 over past and present, and
    K other prompts::

        sigma^2 = sum_k (q_k - m_k^2) / sum_k (1 - 1 / n_k)
        tau^2   = t (1 + 1 / K) + v / K,     v = sigma^2 mean_k(1 / n_k),
                  t = [ sum_k (m_k - mbar)^2 / (K - 5) - v ]_+

    K - 5 in place of K - 1, and the error of the estimated target in tau^2, let shrinkage fade out with few prompts
    (James and Stein's K - 3 is for normal values; success rates are U-shaped). With K <= 5 there is none.

    *Bias.* A one-sided mean lags behind a drifting value, by slope times mean lag. One prompt's slope is too noisy
    to use (that is `LocalLinear`), but slopes have a common part: a policy step moves the logit of many prompts
    alike, so their values by an amount proportional to the variance of their past rewards, ``f_k = [q_k - m_k^2]_+``
    (past alone). The slope per unit of f is pooled over the other prompts by weighted least squares on the lag, each
    prompt with a level of its own::

        beta = - sum_k Sxz_k / sum_k f_k Sxx_k  *  [ 1 - 4 / z^2 ]_+,    z^2 = (sum_k Sxz_k)^2 / sum_k Sxz_k^2

    and the value moves by ``beta f`` times the mean lag of its kernel mean. Drift within two standard errors of 0 is
    taken as none; prompts that always or never succeed do not move.

    sigma^2, tau^2, beta and the target of a prompt come from the *other* prompts alone (leave-one-prompt-out), f from
    its past alone, and the kernel mean leaves the completion out: nothing depends on the completion's own reward, so
    the gradient stays unbiased. A prompt with no past, alone in its group, gets the other prompts' mean.

    Wider bandwidths pay off here, since the common part of the bias is removed: with few visits, twice KAE's.

    Parameters
    ----------
    kernel, bandwidth
        See `KernelBaseline`. The bandwidth is learned along the run unless it is given.
    cold_start : "batch_mean" or float
        Target of shrinkage, and value of a prompt of which nothing is known: the mean of the other prompts of this
        step (0 if there are none), or the number given.
    """

    rule_of_thumb: ClassVar[float] = 20.0

    cold_start: Literal["batch_mean"] | float = "batch_mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cold_start(self.cold_start)

    @property
    def pools_prompts(self) -> bool:
        return True

    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        xp, kernel = groups.xp, self.weighting
        sums = _KernelSums.of(groups, visits, kernel.weight(visits.lag / bandwidth, array_namespace(visits.lag)))
        now = _KernelSums.of_current(groups, kernel.at_zero)
        f = ratio(sums.carried_sq, sums.mass, 0.0, xp) - ratio(sums.carried, sums.mass, 0.0, xp) ** 2
        f = xp.clip(f, 0.0, None)
        drift = _common_drift(groups, sums, now, f)
        target, noise, spread = _prior(groups, sums, now, drift, f)
        if self.cold_start != "batch_mean":
            target = xp.full_like(target, float(self.cold_start))

        others_mass, others_carried = groups.others()
        own_mass = groups.mass[..., : others_mass.shape[-1]]  # full groups without weights have one for all completions
        mass = sums.mass + kernel.at_zero * others_mass
        mass_sq = sums.mass_sq + now.mass_sq - (kernel.at_zero * own_mass) ** 2
        inverse = ratio(xp.ones_like(mass), mass, 0.0, xp)
        variance = noise * (mass_sq * inverse**2)
        shrinkage = xp.where(mass > 0, ratio(variance, variance + spread, 0.0, xp), 1.0)
        # (1 - shrinkage) own + shrinkage target, own = (past + rest of the group) / mass, in few arrays of (..., P, G).
        slope = (1 - shrinkage) * inverse
        level = slope * (sums.carried + drift * f * sums.mass_lag) + shrinkage * target
        return level + (kernel.at_zero * slope) * others_carried


@dataclass(frozen=True, eq=False)
class _KernelSums:
    """Kernel-weighted sums of each prompt, shape (..., P, 1); those of squared masses have the kernel squared too."""

    mass: Array
    carried: Array
    carried_sq: Array
    mass_sq: Array
    mass_lag: Array
    mass_lag_sq: Array
    carried_lag: Array

    @classmethod
    def of(cls, groups: Groups, visits: Visits, weight: Array) -> _KernelSums:
        """Of the past visits."""
        xp = groups.xp
        mass, carried, lag = visits.mass, visits.carried, visits.lag
        terms = [(weight, mass), (weight, carried), (weight, visits.carried_sq), (weight**2, visits.mass_sq)]
        terms += [(weight, mass * lag), (weight, mass * lag**2), (weight, carried * lag)]
        return cls(*(xp.vecdot(*term)[..., None] for term in terms))

    @classmethod
    def of_current(cls, groups: Groups, at_zero: float) -> _KernelSums:
        """Of the whole current group, at lag 0."""
        xp = groups.xp
        mass, carried = groups.mass, groups.carried
        terms = (at_zero * mass, at_zero * carried, at_zero * carried * groups.reward, (at_zero * mass) ** 2)
        sums = [xp.sum(term, axis=-1, keepdims=True) for term in terms]
        return cls(*sums, *[xp.zeros_like(sums[0])] * 3)


def _common_drift(groups: Groups, past: _KernelSums, now: _KernelSums, f: Array) -> Array:
    """Slope of the value in time per unit of f, from the other prompts; (..., P, 1)."""
    xp = groups.xp
    mass, carried = past.mass + now.mass, past.carried + now.carried
    sxz = past.carried_lag - past.mass_lag * ratio(carried, mass, 0.0, xp)
    sxx = past.mass_lag_sq - past.mass_lag * ratio(past.mass_lag, mass, 0.0, xp)
    score = groups.pooled_others(sxz)
    slope = -ratio(score, groups.pooled_others(f * sxx), 0.0, xp)
    return slope * xp.clip(1 - DRIFT_Z2 * ratio(groups.pooled_others(sxz**2), score**2, 1.0, xp), 0.0, 1.0)


def _prior(groups: Groups, past: _KernelSums, now: _KernelSums, drift: Array, f: Array) -> tuple[Array, Array, Array]:
    """Target, sigma^2 and tau^2 for each prompt from the other prompts; (..., P, 1) each."""
    xp = groups.xp
    mass, mass_sq = past.mass + now.mass, past.mass_sq + now.mass_sq
    mean = ratio(past.carried + now.carried, mass, 0.0, xp)
    scatter = xp.clip(ratio(past.carried_sq + now.carried_sq, mass, 0.0, xp) - mean**2, 0.0, None)
    inverse_n = ratio(mass_sq, mass**2, 0.0, xp)
    seen = xp.astype(mass > 0, mean.dtype)
    n = groups.pooled_others(seen)
    target = ratio(
        groups.pooled_others(mean) + drift * groups.pooled_others(f * ratio(past.mass_lag, mass, 0.0, xp)),
        n,
        0.0,
        xp,
    )

    # 1 - 1/n_k is 0 up to rounding where a prompt has one completion: such prompts say nothing of sigma^2.
    freedom = xp.where(inverse_n < 1 - 1e-9, 1 - inverse_n, xp.zeros_like(inverse_n)) * seen
    noise = ratio(groups.pooled_others(scatter), groups.pooled_others(freedom), 0.0, xp)

    # Deviations from the mean of all, so that taking one prompt out again loses no digits.
    center = ratio(groups.pooled(mean), groups.pooled(seen), 0.0, xp)
    deviation = (mean - center) * seen
    squares = groups.pooled_others(deviation**2) - ratio(groups.pooled_others(deviation) ** 2, n, 0.0, xp)
    error = noise * ratio(groups.pooled_others(inverse_n), n, 0.0, xp)
    spread = xp.clip(ratio(squares, n - MIN_OTHERS, 0.0, xp) - error, 0.0, None)
    spread = spread + ratio(spread + error, n, 0.0, xp)
    return target, xp.where(n > MIN_OTHERS, noise, xp.zeros_like(noise)), spread
