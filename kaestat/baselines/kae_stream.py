"""The paper's one-shot variant of KAE: each copy of the prompt is a stream, and all visits weigh the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from kaestat.baselines.kernel_mean import KernelBaseline, cold_start_value
from kaestat.core.arrays import Array, Groups, Visits, ratio
from kaestat.smoothing.selectors import Selector


@dataclass(frozen=True)
class KaeStream(KernelBaseline):
    """Kernel-weighted mean of *group means*: ``[sum_v w_v Zbar_v + w_0 Zbar_{-g}] / [sum_v w_v + w_0]``.

    Paper, appendix "Baseline construction in the one-shot experiment". It equals `Kae` if every visit has the
    same number of completions, except that the current group, with one completion left out, weighs as much as a
    full one. For a lone completion the current term is dropped.

    Rows are streams, so ``stream_ids`` must mean the same stream at every step (the position of the copy in the
    batch, not a random id).

    Parameters
    ----------
    kernel, bandwidth, cold_start
        See `KernelBaseline`; 10 steps unless given. The other rows of the step are the other streams.
    """

    bandwidth: float | str | Selector = 10.0

    unit: ClassVar[Literal["prompt", "group"]] = "group"

    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        xp, at_zero, weight = groups.xp, self.weighting.at_zero, self.weights(visits, bandwidth)
        others_mass, others_carried = groups.others()
        current = at_zero * xp.astype(others_mass > 0, others_carried.dtype)
        others_mean = ratio(others_carried, others_mass, 0.0, xp)
        weight = weight * xp.astype(visits.mass > 0, visits.mass.dtype)
        mass = xp.sum(weight, axis=-1, keepdims=True) + current
        carried = xp.vecdot(weight, ratio(visits.carried, visits.mass, 0.0, xp))[..., None] + current * others_mean
        otherwise = cold_start_value(groups, self.cold_start, self.nobody)
        return ratio(carried, mass, otherwise, xp) + xp.zeros_like(groups.reward)

    def effective_completions_at(self, groups: Groups, visits: Visits, bandwidth: Array | float) -> Array:
        xp = groups.xp
        weight = self.weights(visits, bandwidth) * xp.astype(visits.mass > 0, visits.mass.dtype)
        inverse_size = ratio(visits.mass_sq, visits.mass**2, 0.0, xp)
        squares = xp.sum(weight**2 * inverse_size, axis=-1, keepdims=True)
        return ratio(xp.sum(weight, axis=-1, keepdims=True) ** 2, squares, 0.0, xp)
