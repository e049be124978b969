"""KAE with empirical Bayes across prompts: levels shrunk towards those of the other prompts, and a common drift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal

import numpy as np

from kaestat.baselines.base import shapes_of
from kaestat.baselines.kae import KernelBaseline, check_cold_start
from kaestat.baselines.weighted_value import weighted_value
from kaestat.core.arrays import Array, Groups, Visits, namespace, not_negative, ratio
from kaestat.core.digits import beyond_rounding, variance_from
from kaestat.smoothing.kernels import Kernel

MIN_OTHERS = 5  # degrees of freedom given up in tau^2: with this many other prompts or fewer, no shrinkage
LARGEST_PRIOR = 1e9  # completions that a prior can count as
DRIFT_Z2 = 4.0  # squared z-score that the common drift must exceed: two standard errors


@dataclass(frozen=True)
class KaeEb(KernelBaseline):
    """Kernel mean of the prompt, moved along the drift of the other prompts and shrunk towards their mean.

    ``KAE_g`` has two kinds of error, and the other prompts of the step help with both.

    *Variance.* A kernel mean of effective size ``n = (sum w)^2 / sum w^2`` has variance ``sigma^2 / n`` around
    the prompt's value, and values spread over prompts with variance ``tau^2``. The best linear estimator shrinks
    towards the other prompts' mean by ``lambda = (sigma^2 / n) / (sigma^2 / n + tau^2)``; for Beta-distributed
    success rates this is the posterior mean. With m_k and q_k the kernel means of Z and Z^2 over past and present, and
    K other prompts::

        sigma^2 = sum_k (q_k - m_k^2) / sum_k (1 - 1 / n_k)
        tau^2   = t (1 + 1 / K) + v / K,     v = sigma^2 mean_k(1 / n_k),
                  t = [ sum_k (m_k - mbar)^2 / (K - 5) - v ]_+

    K - 5 instead of K - 1, and the error of the estimated target in tau^2, reduce shrinkage with few prompts
    (James and Stein's K - 3 is for normal values; success rates are U-shaped). With K <= 5 there is no shrinkage.

    *Bias.* A one-sided mean lags behind a drifting value by slope times mean lag. One prompt's slope is too noisy
    to use (`LocalLinear` does so), but slopes have a common part. A policy step moves the logits of many prompts
    alike, so it moves their values in proportion to the variance of their past rewards, ``f_k = [q_k - m_k^2]_+``
    (past alone). The slope per unit of f is pooled over the other prompts by weighted least squares on the lag, each
    prompt with its own level::

        beta = - sum_k Sxz_k / sum_k f_k Sxx_k  *  [ 1 - 4 / z^2 ]_+,    z^2 = (sum_k Sxz_k)^2 / sum_k Sxz_k^2

    and the value moves by ``beta f`` times the mean lag of its kernel mean. Drift within two standard errors of 0 is
    set to 0; prompts that always or never succeed do not move. After a long gap a value may
    leave the range of the rewards.

    sigma^2, tau^2, beta and the target of a prompt come from the *other* prompts alone (leave-one-prompt-out), f from
    its past alone, and the kernel mean leaves the completion out. So nothing depends on the completion's own reward,
    and the gradient stays unbiased. A lone completion of a prompt without a past gets the other prompts' mean.

    *Weights* W make it an estimate of the best baseline ``E[W Z] / E[W]``. With x_k and w_k the kernel means of W Z and
    of W, the target is the pooled ratio ``b0 = sum_k x_k / sum_k w_k`` of the other prompts. The mean of their
    ratios would be far off if few completions of a prompt have most of the weight. The moments are those of
    ``W (Z - b0)``, whose noise is pooled over prompts, so it counts even before a prompt has a heavy completion::

        b = (sum w W Z + kappa b0) / (sum w W + kappa),     kappa = sum w (sigma^2 / n) u / tau^2,
                                                            u = sum_k w_k^2 / sum_k w_k

    That is best if the best baseline differs little between prompts. If it depends on the value,
    `weighted_value` is better. A learned bandwidth (`kaestat.smoothing.selectors.Auto`) also learns
    how to mix the two; a given one uses the pooled ratio. Equal weights have no effect.

    Wider bandwidths are better here, since the common part of the bias is removed: with few visits, twice KAE's.

    Parameters
    ----------
    kernel, bandwidth
        See `KernelBaseline`. The bandwidth is learned along the run unless given.
    cold_start : "batch_mean" or float
        Target of shrinkage, and value of a prompt without data: the mean of the other prompts of this
        step (0 if there are none), or the given number. A learned bandwidth mixes it in as for `Kae`.
    """

    rule_of_thumb: ClassVar[float] = 20.0
    shrinks: ClassVar[bool] = True

    cold_start: Literal["batch_mean"] | float = "batch_mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cold_start(self.cold_start)

    @property
    def pools_prompts(self) -> bool:
        return True

    @property
    def kernel_sums_suffice(self) -> bool:
        return True

    def ways(self, groups: Groups, visits: Visits) -> tuple[Callable[..., Array], ...]:
        return (self.values_at, self.from_values_at) if _weighted(groups, visits) else (self.values_at,)

    def accepts_carry(self, carry: dict[str, np.ndarray] | None) -> bool:
        running = self.selector.running
        weighted = None if running is None else running.initial_carry(ways=2)
        return super().accepts_carry(carry) or (weighted is not None and shapes_of(weighted) == shapes_of(carry))

    def from_values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        """Best baselines, computed from the same completions' values without weights (`weighted_value`)."""
        kernel = self.weighting
        plain = {field.name: getattr(visits, field.name) for field in fields(visits) if "weight" not in field.name}
        value = self.values_at(replace(groups, weight=None), Visits(**plain), bandwidth, step)
        weight = kernel.weight(visits.lag / bandwidth, namespace(visits.lag))
        return weighted_value(value, groups, visits, weight, kernel.at_zero, MIN_OTHERS)

    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        xp, kernel = groups.xp, self.weighting
        sums = _KernelSums.of(groups, visits, kernel, bandwidth)
        now = _KernelSums.of_current(groups, kernel.at_zero)
        f = variance_from(ratio(sums.carried_sq, sums.mass, 0.0, xp), ratio(sums.carried, sums.mass, 0.0, xp))
        drift = _common_drift(groups, sums, now, f)
        target, noise, spread = _prior(groups, sums, now, drift, f, self.nobody)
        if self.cold_start != "batch_mean":
            target = xp.full_like(target, float(self.cold_start))

        others_mass, others_carried = groups.others()
        weighted = _weighted(groups, visits)
        plain = replace(groups, weight=None) if weighted else groups
        others_count = plain.others()[0] if weighted else others_mass
        own = plain.own_mass[..., : others_count.shape[-1]]  # full groups have one for all completions
        mass = sums.mass + kernel.at_zero * others_mass
        inverse = ratio(xp.ones_like(mass), mass, 0.0, xp)
        count_sq = sums.count_sq + now.count_sq - (kernel.at_zero * own) ** 2
        if weighted:
            per_completion = ratio(xp.ones_like(mass), sums.count + kernel.at_zero * others_count, 0.0, xp)
            variance, spread = noise * (count_sq * per_completion**2), spread * mass * per_completion
        else:
            variance = noise * (count_sq * inverse**2)
        shrinkage = xp.where(mass > 0, ratio(variance, variance + spread, 0.0, xp), 1.0)
        # (1 - shrinkage) own + shrinkage target, own = (past + rest of the group) / mass, in few arrays of (..., P, G).
        slope = (1 - shrinkage) * inverse
        level = slope * (sums.carried + drift * f * sums.mass_lag) + shrinkage * target
        return level + (kernel.at_zero * slope) * others_carried

    def effective_completions_at(self, groups: Groups, visits: Visits, bandwidth: Array | float) -> Array:
        """Effective completions of the prompt and of its prior: ``n + sigma^2 / tau^2``."""
        xp, kernel = groups.xp, self.weighting
        sums = _KernelSums.of(groups, visits, kernel, bandwidth)
        now = _KernelSums.of_current(groups, kernel.at_zero)
        none = xp.zeros_like(sums.mass)
        _, noise, spread = _prior(groups, sums, now, none, none)
        of_prior = ratio(noise, xp.maximum(spread, noise / LARGEST_PRIOR), 0.0, xp)
        return super().effective_completions_at(groups, visits, bandwidth) + of_prior


def _weighted(groups: Groups, visits: Visits) -> bool:
    return groups.weight is not None or visits.weight is not None


@dataclass(frozen=True, eq=False)
class _KernelSums:
    """Kernel-weighted sums of each prompt, shape (..., P, 1); ``count_sq`` has the kernel squared."""

    mass: Array
    carried: Array
    carried_sq: Array
    mass_sq: Array
    mass_sq_carried: Array
    mass_sq_carried_sq: Array
    count: Array
    count_sq: Array
    mass_lag: Array
    mass_lag_sq: Array
    carried_lag: Array

    @classmethod
    def of(cls, groups: Groups, visits: Visits, kernel: Kernel, bandwidth: Array | float) -> _KernelSums:
        """Of the past visits."""
        if (made := visits.sums) is not None:
            plain = (made.mass, made.carried, made.carried_sq)
            return cls(*plain, *plain, made.mass, made.count_sq, made.mass_lag, made.mass_lag_sq, made.carried_lag)
        xp = groups.xp
        weight = kernel.weight(visits.lag / bandwidth, namespace(visits.lag))
        mass, carried, lag = visits.mass, visits.carried, visits.lag

        def total(column: Array) -> Array:
            return xp.vecdot(weight, column)[..., None]

        plain = (total(mass), total(carried), total(visits.carried_sq))
        squared, count = plain, plain[0]  # if the mass is the count
        if visits.weight is not None:
            squared = (total(visits.mass_sq), total(visits.mass_sq_carried), total(visits.mass_sq_carried_sq))
            count = total(visits.count)
        count_sq = xp.vecdot(weight**2, visits.count)[..., None]
        lags = (total(mass * lag), total(mass * lag**2), total(carried * lag))
        return cls(*plain, *squared, count, count_sq, *lags)

    @classmethod
    def of_current(cls, groups: Groups, at_zero: float) -> _KernelSums:
        """Of the whole current group, at lag 0."""
        xp = groups.xp
        mass, carried = groups.mass, groups.carried

        def total(column: Array) -> Array:
            return xp.sum(column, axis=-1, keepdims=True)

        plain = (total(at_zero * mass), total(at_zero * carried), total(at_zero * carried * groups.reward))
        squared, count = plain, plain[0]
        if groups.weight is not None:
            squares = (mass**2, mass * carried, carried**2)
            squared = tuple(total(at_zero * column) for column in squares)
            count = total(at_zero * groups.present)
        count_sq = total(at_zero**2 * groups.present)
        return cls(*plain, *squared, count, count_sq, *[xp.zeros_like(count)] * 3)


def _common_drift(groups: Groups, past: _KernelSums, now: _KernelSums, f: Array) -> Array:
    """Slope of the value in time per unit of f, from the other prompts; (..., P, 1)."""
    xp = groups.xp
    mass, carried = past.mass + now.mass, past.carried + now.carried
    sxz = past.carried_lag - past.mass_lag * ratio(carried, mass, 0.0, xp)
    sxx = past.mass_lag_sq - past.mass_lag * ratio(past.mass_lag, mass, 0.0, xp)
    sxx = beyond_rounding(sxx, past.mass_lag_sq)  # completions of one date tell of no drift
    sxz = xp.where(sxx > 0, sxz, 0.0)
    score = groups.pooled_others(sxz)
    slope = -ratio(score, groups.pooled_others(f * sxx), 0.0, xp)
    return slope * xp.clip(1 - DRIFT_Z2 * ratio(groups.pooled_others(sxz**2), score**2, 1.0, xp), 0.0, 1.0)


def _prior(
    groups: Groups, past: _KernelSums, now: _KernelSums, drift: Array, f: Array, nobody: float = 0.0
) -> tuple[Array, Array, Array]:
    """Target, sigma^2 and tau^2 for each prompt from the other prompts; (..., P, 1) each.

    tau^2 comes in the form that is multiplied by the prompt's mean weight: unit weights leave it as it is.
    """
    xp = groups.xp
    mass, count = past.mass + now.mass, past.count + now.count
    mean = ratio(past.carried + now.carried, count, 0.0, xp)
    inverse_n = ratio(past.count_sq + now.count_sq, count**2, 0.0, xp)
    seen = xp.astype(mass > 0, mean.dtype)
    plain = past.count is past.mass and now.count is now.mass
    weight = seen if plain else ratio(mass, count, 0.0, xp)
    n = groups.pooled_others(seen)
    others_weight = n if plain else groups.pooled_others(weight)
    moved = drift * groups.pooled_others(f * ratio(past.mass_lag, count, 0.0, xp))
    target = ratio(groups.pooled_others(mean) + moved, others_weight, nobody, xp)

    # Variance of W (Z - target) within prompts, a quadratic in the target; the terms in it vanish for unit weights.
    square = ratio(past.mass_sq_carried_sq + now.mass_sq_carried_sq, count, 0.0, xp)
    # 1 - 1/n_k is 0 up to rounding for a lone completion: such prompts have no information on sigma^2.
    freedom = xp.where(inverse_n < 1 - 1e-9, 1 - inverse_n, xp.zeros_like(inverse_n)) * seen
    scatter = groups.pooled_others(variance_from(square, mean))
    if not plain:
        crossed = ratio(past.mass_sq_carried + now.mass_sq_carried, count, 0.0, xp) - mean * weight
        weight_sq = ratio(past.mass_sq + now.mass_sq, count, 0.0, xp)
        in_weight = groups.pooled_others(weight_sq - weight**2)
        scatter = scatter - 2 * target * groups.pooled_others(crossed) + target**2 * in_weight
        scatter = beyond_rounding(scatter, groups.pooled_others(square) + target**2 * groups.pooled_others(weight_sq))
    noise = ratio(scatter, groups.pooled_others(freedom), 0.0, xp)

    # Deviations from the ratio of all, so that taking one prompt out again loses no digits.
    center = ratio(groups.pooled(mean), groups.pooled(weight), 0.0, xp)
    deviation = (mean - center * weight) * seen
    beside = towards = groups.pooled_others(deviation)
    unit = None if plain else ratio(groups.pooled_others(weight**2), others_weight, 0.0, xp)
    if unit is not None:
        towards = 2 * groups.pooled_others(deviation * weight) - beside * unit
    squares = groups.pooled_others(deviation**2) - ratio(beside * towards, others_weight, 0.0, xp)
    error = noise * ratio(groups.pooled_others(inverse_n), n, 0.0, xp)
    spread = not_negative(ratio(squares, n - MIN_OTHERS, 0.0, xp) - error)
    spread = spread + ratio(spread + error, n, 0.0, xp)
    noise = xp.where(n > MIN_OTHERS, noise, xp.zeros_like(noise))
    return target, noise, spread if unit is None else ratio(spread, unit, 0.0, xp)
