"""KAE with empirical-Bayes shrinkage of each prompt towards the other prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from array_api_compat import array_namespace

from kaestat.arrays import Array, Groups, Visits, ratio
from kaestat.baselines.kae import KernelBaseline, check_cold_start, cold_start_value


@dataclass(frozen=True)
class KaeEb(KernelBaseline):
    """``(1 - lambda_g) * KAE_g + lambda_g * mean of the other prompts``, lambda by moments from the other prompts.

    A kernel mean with effective sample size ``n = (sum w W)^2 / sum w^2 W^2`` has variance ``sigma^2 / n`` around the
    prompt's value; the values spread with variance ``tau^2`` over prompts. The best linear estimator shrinks by
    ``lambda = (sigma^2 / n) / (sigma^2 / n + tau^2)``, which for Beta-distributed success rates is the posterior mean.
    For each prompt, ``sigma^2``, ``tau^2`` and the target are estimated from the *other* prompts of the step
    (their past and present), by unbiased moments::

        sigma^2 = sum_k (q_k - m_k^2) / sum_k (1 - 1 / n_k)        m_k, q_k: kernel means of Z and Z^2
        tau^2   = [ var_k(m_k) - sigma^2 mean_k(1 / n_k) ]_+

    and KAE_g and its n leave the completion itself out: nothing depends on its own reward, so the gradient stays
    unbiased. A prompt with no past, alone in its group, gets the other prompts' mean; with fewer than two other
    prompts there is nothing to learn from and no shrinkage.

    Parameters
    ----------
    kernel, bandwidth
        See `KernelBaseline`.
    cold_start : "batch_mean" or float
        As in `Kae`; also the target of shrinkage.
    """

    cold_start: Literal["batch_mean"] | float = "batch_mean"

    def __post_init__(self):
        super().__post_init__()
        check_cold_start(self.cold_start)

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        value = groups.xp.zeros_like(groups.reward)
        for bandwidth, share in self.bandwidth.resolve(visits, groups.count, step=step, kernel=self.kernel):
            value = value + share * self._shrunk(groups, visits, bandwidth)
        return value

    def _shrunk(self, groups: Groups, visits: Visits, bandwidth: Array | float) -> Array:
        xp = groups.xp
        at_zero = self.kernel.at_zero
        weight = self.kernel.weight(visits.lag / bandwidth, array_namespace(visits.lag))
        past_mass, past_carried, past_carried_sq = (
            xp.sum(weight * past, axis=-1, keepdims=True) for past in (visits.mass, visits.carried, visits.carried_sq)
        )
        past_mass_sq = xp.sum(weight**2 * visits.mass_sq, axis=-1, keepdims=True)

        target, noise, spread = self._prior_from_others(
            mass=past_mass + at_zero * xp.sum(groups.mass, axis=-1, keepdims=True),
            carried=past_carried + at_zero * xp.sum(groups.carried, axis=-1, keepdims=True),
            carried_sq=past_carried_sq + at_zero * xp.sum(groups.carried * groups.reward, axis=-1, keepdims=True),
            mass_sq=past_mass_sq + at_zero**2 * xp.sum(groups.mass**2, axis=-1, keepdims=True),
            xp=xp,
        )
        if self.cold_start != "batch_mean":
            target = xp.full_like(target, float(self.cold_start))

        own_mass, own_carried = groups.leave_one_out()
        mass = past_mass + at_zero * own_mass
        others_sq = xp.sum(groups.mass**2, axis=-1, keepdims=True) - groups.mass**2
        inverse_n = ratio(past_mass_sq + at_zero**2 * others_sq, mass**2, 0.0, xp)
        shrinkage = ratio(noise * inverse_n, noise * inverse_n + spread, 0.0, xp)
        own = ratio(past_carried + at_zero * own_carried, mass, target, xp)
        return own + shrinkage * (target - own) + xp.zeros_like(groups.reward)

    @staticmethod
    def _prior_from_others(
        *, mass: Array, carried: Array, carried_sq: Array, mass_sq: Array, xp
    ) -> tuple[Array, Array, Array]:
        """Target, sigma^2 and tau^2 for each prompt from all the others; (..., P, 1) each."""
        mean = ratio(carried, mass, 0.0, xp)
        inverse_n = ratio(mass_sq, mass**2, 0.0, xp)
        scatter = xp.clip(ratio(carried_sq, mass, 0.0, xp) - mean**2, 0.0, None)
        seen = xp.astype(mass > 0, mean.dtype)

        def others(per_prompt: Array) -> Array:
            return xp.sum(per_prompt, axis=-2, keepdims=True) - per_prompt

        n = others(seen)
        target = ratio(others(mean), n, 0.0, xp)
        # `1 - 1/n_k` is 0 up to rounding where a prompt has one completion: such prompts say nothing of sigma^2.
        freedom = xp.where(inverse_n < 1 - 1e-9, 1 - inverse_n, xp.zeros_like(inverse_n)) * seen
        noise = ratio(others(scatter), others(freedom), 0.0, xp)
        # Deviations from the batch mean, so that removing one prompt's share loses no digits.
        center = xp.sum(mean, axis=-2, keepdims=True) / xp.clip(xp.sum(seen, axis=-2, keepdims=True), 1.0, None)
        deviation = (mean - center) * seen
        between = others(deviation**2) - ratio(others(deviation) ** 2, n, 0.0, xp)
        spread = ratio(between, n - 1, 0.0, xp) - noise * ratio(others(inverse_n), n, 0.0, xp)
        few = n < 2
        return target, xp.where(few, xp.zeros_like(noise), noise), xp.clip(spread, 0.0, None)
