"""KRPO: a scalar Kalman filter over the completions of one group (Wang et al., 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kaestat.baselines.base import WithoutVisits
from kaestat.core.arrays import Array, Groups, Visits

PROCESS_NOISE, MEASUREMENT_NOISE = 1e-5, 1e-2  # Q and R of the paper, as the first value 0 and variance 1


@dataclass(frozen=True)
class Krpo(WithoutVisits):
    """Filtered group reward right after each completion, with a new filter for every group.

    Over the samples in order: ``P- = P + Q``, ``K = P- / (P- + R)``, ``x += K (r - x)``, ``P = (1 - K) P-``.
    Each completion's value is x just after its own update, and the method divides its advantage by
    ``sqrt(P) + 1e-8`` unless you choose another scaling.
    """

    unit: ClassVar[Literal["prompt", "group"]] = "group"

    @property
    def alone(self) -> str:
        return "a multiple of its reward, without a baseline"

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        return self._filtered(groups)[0]

    def own_derivative(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        return self._filtered(groups)[1]

    def deviation(self, groups: Groups, visits: Visits, *, step: int | Array) -> Array:
        return groups.xp.sqrt(self._filtered(groups)[2]) + 1e-8

    def _filtered(self, groups: Groups) -> list[Array]:
        """State, gain and variance after each completion, all (..., P, G)."""
        xp, present, reward = groups.xp, groups.present, groups.carried
        state = xp.full_like(present[..., :1], 0.0)
        variance = xp.full_like(state, 1.0)
        after = []
        for g in range(present.shape[-1]):
            there, prior = present[..., g : g + 1], variance + PROCESS_NOISE
            gain = there * prior / (prior + MEASUREMENT_NOISE)
            state = state + gain * (reward[..., g : g + 1] - state)
            variance = xp.where(there > 0, (1 - gain) * prior, variance)
            after.append((state, gain, variance))
        return [xp.concat(list(column), axis=-1) for column in zip(*after, strict=True)]
