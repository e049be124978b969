"""The paper's one-shot variant of KAE: each copy of the prompt is a stream, and all visits weigh the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from kaestat.baselines.kae import KernelBaseline, check_cold_start, cold_start_value
from kaestat.core.arrays import Array, Groups, Visits, namespace, ratio
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
    kernel, bandwidth
        See `KernelBaseline`; 10 steps unless given.
    cold_start : "batch_mean" or float
        As in `Kae`; the other rows of the step are the other streams.
    """

    bandwidth: float | str | Selector = 10.0
    cold_start: Literal["batch_mean"] | float = "batch_mean"

    unit: ClassVar[Literal["prompt", "group"]] = "group"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cold_start(self.cold_start)

    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        xp, kernel = groups.xp, self.weighting
        others_mass, others_carried = groups.others()
        current = kernel.at_zero * xp.astype(others_mass > 0, others_carried.dtype)
        others_mean = ratio(others_carried, others_mass, 0.0, xp)
        visit_mean = ratio(visits.carried, visits.mass, 0.0, xp)
        visited = xp.astype(visits.mass > 0, visits.mass.dtype)
        otherwise = cold_start_value(groups, self.cold_start, self.nobody)
        weight = kernel.weight(visits.lag / bandwidth, namespace(visits.lag)) * visited
        mass = xp.sum(weight, axis=-1, keepdims=True) + current
        carried = xp.sum(weight * visit_mean, axis=-1, keepdims=True) + current * others_mean
        return ratio(carried, mass, otherwise, xp) + xp.zeros_like(groups.reward)

    def effective_completions_at(self, groups: Groups, visits: Visits, bandwidth: Array | float) -> Array:
        xp = groups.xp
        visited = xp.astype(visits.mass > 0, visits.mass.dtype)
        weight = self.weighting.weight(visits.lag / bandwidth, xp) * visited
        inverse_size = ratio(visits.mass_sq, visits.mass**2, 0.0, xp)
        squares = xp.sum(weight**2 * inverse_size, axis=-1, keepdims=True)
        return ratio(xp.sum(weight, axis=-1, keepdims=True) ** 2, squares, 0.0, xp)
