"""KAE with empirical Bayes across prompts: levels shrunk towards those of the other prompts, and a common drift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np

from kaestat.baselines.base import shapes_of
from kaestat.baselines.kernel_mean import KernelBaseline
from kaestat.baselines.weighted_value import weighted_value
from kaestat.core.arrays import Array, Groups, Visits, not_negative, ratio
from kaestat.core.digits import beyond_rounding, variance_from

MIN_OTHERS = 5  # degrees of freedom given up in tau^2: with this many other prompts or fewer, no shrinkage
LARGEST_PRIOR = 1e9  # completions that a prior can count as
DRIFT_Z2 = 4.0  # squared z-score that the common drift must exceed: two standard errors


@dataclass(frozen=True)
class KaeEb(KernelBaseline):
    """Kernel mean of the prompt, moved along the drift of the other prompts and shrunk towards their mean.

    The page of the method has the equations. A kernel mean has two kinds of error, and the other prompts of the step
    help with both. *Variance*: the best linear estimator shrinks towards the other prompts' mean by
    ``lambda = (sigma^2 / n) / (sigma^2 / n + tau^2)``. With five other prompts or fewer there is no shrinkage.
    *Bias*: a one-sided mean lags behind a drifting value. A policy step moves the logits of many prompts alike, so it
    moves their values in proportion to the variance f of their past rewards. The slope beta per unit of f is pooled
    over the other prompts. Drift within two standard errors of 0 is set to 0; prompts that always or never succeed do
    not move. After a long gap a value may leave the range of the rewards.

    sigma^2, tau^2, beta and the target of a prompt come from the *other* prompts alone (leave-one-prompt-out), f from
    its past alone, and the kernel mean leaves the completion out. So nothing depends on the completion's own reward,
    and the gradient stays unbiased. A lone completion of a prompt without a past gets the other prompts' mean.

    *Weights* W make it an estimate of the best baseline ``E[W Z] / E[W]``, shrunk towards the pooled ratio of the other
    prompts by the moments of ``W (Z - b0)``; the method's page has the equations. That is best if the best baseline
    differs little between prompts. If it depends on the value, `weighted_value` is better. A learned bandwidth
    (`kaestat.smoothing.selectors.Auto`) also learns how to mix the two; a given one uses the pooled ratio. Equal
    weights have no effect.

    Parameters
    ----------
    kernel, bandwidth, cold_start
        See `KernelBaseline`. The bandwidth is learned along the run unless given. A number for ``cold_start`` is also
        the target of shrinkage.
    """

    rule_of_thumb: ClassVar[float] = 20.0
    shrinks: ClassVar[bool] = True

    @property
    def pools_prompts(self) -> bool:
        return True

    def ways(self, groups: Groups, visits: Visits) -> tuple[Callable[..., Array], ...]:
        weighted = groups.weight is not None or visits.weight is not None
        return (self.values_at, self.from_values_at) if weighted else (self.values_at,)

    def accepts_carry(self, carry: dict[str, np.ndarray] | None) -> bool:
        running = self.selector.running
        weighted = None if running is None else running.initial_carry(ways=2)
        return super().accepts_carry(carry) or (weighted is not None and shapes_of(weighted) == shapes_of(carry))

    def from_values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        """Best baselines, computed from the same completions' values without weights (`weighted_value`)."""
        plain = {field.name: getattr(visits, field.name) for field in fields(visits) if "weight" not in field.name}
        value = self.values_at(replace(groups, weight=None), Visits(**plain), bandwidth, step)
        kernel = self.weights(visits, bandwidth)
        return weighted_value(value, groups, visits, kernel, self.weighting.at_zero, MIN_OTHERS)

    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        xp, at_zero = groups.xp, self.weighting.at_zero
        past, whole = self._sums(groups, visits, bandwidth)
        f = variance_from(ratio(past.carried_sq, past.mass, 0.0, xp), ratio(past.carried, past.mass, 0.0, xp))
        drift = _common_drift(groups, whole, f)
        target, noise, spread = _prior(groups, whole, drift, f, self.nobody)
        if self.cold_start != "batch_mean":
            target = xp.full_like(target, float(self.cold_start))

        plain, (others_mass, others_carried) = replace(groups, weight=None), groups.others()
        others_count = plain.others()[0]
        own = plain.own_mass[..., : others_count.shape[-1]]  # full groups have one for all completions
        mass = past.mass + at_zero * others_mass
        inverse = ratio(xp.ones_like(mass), mass, 0.0, xp)
        per_completion = ratio(xp.ones_like(mass), past.count + at_zero * others_count, 0.0, xp)
        variance = noise * ((whole.count_sq - (at_zero * own) ** 2) * per_completion**2)
        spread = spread * mass * per_completion
        shrinkage = xp.where(mass > 0, ratio(variance, variance + spread, 0.0, xp), 1.0)
        # (1 - shrinkage) own + shrinkage target, own = (past + rest of the group) / mass, in few arrays of (..., P, G).
        slope = (1 - shrinkage) * inverse
        level = slope * (past.carried + drift * f * past.mass_lag) + shrinkage * target
        return level + (at_zero * slope) * others_carried

    def effective_completions_at(self, groups: Groups, visits: Visits, bandwidth: Array | float) -> Array:
        """Effective completions of the prompt and of its prior: ``n + sigma^2 / tau^2``."""
        xp, (_, whole) = groups.xp, self._sums(groups, visits, bandwidth)
        none = xp.zeros_like(whole.mass)
        _, noise, spread = _prior(groups, whole, none, none)
        of_prior = ratio(noise, xp.maximum(spread, noise / LARGEST_PRIOR), 0.0, xp)
        return super().effective_completions_at(groups, visits, bandwidth) + of_prior

    def _sums(self, groups: Groups, visits: Visits, bandwidth: Array | float) -> tuple[_KernelSums, _KernelSums]:
        """Of the past visits, and of these and the whole current group, at lag 0."""
        xp, weight, at_zero = groups.xp, self.weights(visits, bandwidth), self.weighting.at_zero
        mass, carried, lag = visits.mass, visits.carried, visits.lag

        def past_sum(column: Array, kernel: Array = weight) -> Array:
            return xp.vecdot(kernel, column)[..., None]

        plain = past_sum(mass), past_sum(carried), past_sum(visits.carried_sq)
        squared = *plain, plain[0]  # if the mass is the count
        if visits.weight is not None:
            columns = (visits.mass_sq, visits.mass_sq_carried, visits.mass_sq_carried_sq, visits.count)
            squared = tuple(map(past_sum, columns))
        lags = (past_sum(mass * lag), past_sum(mass * lag**2), past_sum(carried * lag))
        past = _KernelSums(*plain, *squared, past_sum(visits.count, weight**2), *lags)

        def group_sum(column: Array) -> Array:
            return xp.sum(at_zero * column, axis=-1, keepdims=True)

        mass, carried, present = groups.mass, groups.carried, groups.present
        plain = group_sum(mass), group_sum(carried), group_sum(carried * groups.reward)
        squared = *plain, plain[0]
        if groups.weight is not None:
            squared = tuple(map(group_sum, (mass**2, mass * carried, carried**2, present)))
        now = (*plain, *squared, group_sum(at_zero * present), *[xp.zeros_like(plain[0])] * 3)
        whole = (getattr(past, field.name) + column for field, column in zip(fields(past), now, strict=True))
        return past, _KernelSums(*whole)


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


def _common_drift(groups: Groups, sums: _KernelSums, f: Array) -> Array:
    """Slope of the value in time per unit of f, from the other prompts; (..., P, 1)."""
    xp = groups.xp
    sxz = sums.carried_lag - sums.mass_lag * ratio(sums.carried, sums.mass, 0.0, xp)
    sxx = sums.mass_lag_sq - sums.mass_lag * ratio(sums.mass_lag, sums.mass, 0.0, xp)
    sxx = beyond_rounding(sxx, sums.mass_lag_sq)  # completions of one date tell of no drift
    sxz = xp.where(sxx > 0, sxz, 0.0)
    score = groups.pooled_others(sxz)
    slope = -ratio(score, groups.pooled_others(f * sxx), 0.0, xp)
    return slope * xp.clip(1 - DRIFT_Z2 * ratio(groups.pooled_others(sxz**2), score**2, 1.0, xp), 0.0, 1.0)


def _prior(
    groups: Groups, sums: _KernelSums, drift: Array, f: Array, nobody: float = 0.0
) -> tuple[Array, Array, Array]:
    """Target, sigma^2 and tau^2 for each prompt from the other prompts; (..., P, 1) each.

    tau^2 comes in the form that is multiplied by the prompt's mean weight: unit weights leave it as it is.
    """
    xp = groups.xp
    mean, square, weight, weight_sq, crossed, lag = (
        ratio(column, sums.count, 0.0, xp)
        for column in (
            sums.carried, sums.mass_sq_carried_sq, sums.mass, sums.mass_sq, sums.mass_sq_carried, sums.mass_lag
        )
    )  # fmt: skip
    inverse_n = ratio(sums.count_sq, sums.count**2, 0.0, xp)
    seen = xp.astype(sums.mass > 0, mean.dtype)
    n, others_weight = groups.pooled_others(seen), groups.pooled_others(weight)
    target = ratio(groups.pooled_others(mean) + drift * groups.pooled_others(f * lag), others_weight, nobody, xp)

    # Variance of W (Z - target) within prompts, a quadratic in the target; the terms in it vanish for unit weights.
    # 1 - 1/n_k is 0 up to rounding for a lone completion: such prompts have no information on sigma^2.
    freedom = xp.where(inverse_n < 1 - 1e-9, 1 - inverse_n, xp.zeros_like(inverse_n)) * seen
    scatter = groups.pooled_others(variance_from(square, mean))
    scatter = scatter - 2 * target * groups.pooled_others(crossed - mean * weight)
    scatter = scatter + target**2 * groups.pooled_others(weight_sq - weight**2)
    scatter = beyond_rounding(scatter, groups.pooled_others(square) + target**2 * groups.pooled_others(weight_sq))
    noise = ratio(scatter, groups.pooled_others(freedom), 0.0, xp)

    # Deviations from the ratio of all, so that taking one prompt out again loses no digits.
    center = ratio(groups.pooled(mean), groups.pooled(weight), 0.0, xp)
    deviation = (mean - center * weight) * seen
    beside, unit = groups.pooled_others(deviation), ratio(groups.pooled_others(weight**2), others_weight, 0.0, xp)
    towards = 2 * groups.pooled_others(deviation * weight) - beside * unit
    squares = groups.pooled_others(deviation**2) - ratio(beside * towards, others_weight, 0.0, xp)
    error = noise * ratio(groups.pooled_others(inverse_n), n, 0.0, xp)
    spread = not_negative(ratio(squares, n - MIN_OTHERS, 0.0, xp) - error)
    spread = spread + ratio(spread + error, n, 0.0, xp)
    noise = xp.where(n > MIN_OTHERS, noise, xp.zeros_like(noise))
    return target, noise, ratio(spread, unit, 0.0, xp)
