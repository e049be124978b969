"""Means of a prompt's past rewards, weighted by a kernel of their lag: the base class of the baselines that use one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

from kaestat.baselines import learned_bandwidth
from kaestat.baselines.base import Baseline, Served
from kaestat.core.arrays import Array, Groups, Visits, namespace, ratio
from kaestat.core.checks import check_number
from kaestat.smoothing.kernels import Kernel, as_kernel
from kaestat.smoothing.selectors import Selector, as_selector
from kaestat.smoothing.selectors.base import FormulaSelector
from kaestat.smoothing.selectors.formulas import Settled

ColdStart = Literal["batch_mean"] | float


@dataclass(frozen=True)
class KernelBaseline(Baseline):
    """Base class of the baselines that weight visits by a kernel of their lag.

    Parameters
    ----------
    kernel : str, Kernel or callable
        One-sided kernel; see `kaestat.smoothing.kernels.as_kernel`.
    bandwidth : float, str or Selector
        A number of steps (``inf`` gives all visits equal weights), the name of a selector, or a selector.
        ``"auto"`` (`kaestat.smoothing.selectors.Auto`) learns it along the run.
    cold_start : "batch_mean" or float
        The value of a prompt without any data: the mean of the other prompts of this step (0 if there are none), or the
        given number. A learned bandwidth mixes it in for candidates that reach no visit, and scores them by it; where
        a step is one completion it is 0.
    """

    kernel: str | Kernel | Callable[[Array], Array] = "triangular"
    bandwidth: float | str | Selector = "auto"
    cold_start: ColdStart = "batch_mean"

    takes_weights: ClassVar[bool] = True
    relative: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True
    rule_of_thumb: ClassVar[float] = 10.0  # returns of the prompts: the bandwidth before anything is learned
    nobody: ClassVar[float] = 0.0  # the value where no prompt of the step has data; see `with_population`

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", as_kernel(self.kernel))
        object.__setattr__(self, "bandwidth", as_selector(self.bandwidth))
        check_cold_start(self.cold_start)

    @abstractmethod
    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        """Values at one bandwidth (steps; a number or broadcastable to (..., P, 1)), shape (..., P, G)."""

    def effective_completions_at(self, groups: Groups, visits: Visits, bandwidth: Array | float) -> Array:
        """`effective_completions` at one bandwidth; by default of the kernel mean, ``(sum k W)^2 / sum k^2 W^2``."""
        weight = self.weights(visits, bandwidth)
        mass, squares = groups.xp.vecdot(weight, visits.mass), groups.xp.vecdot(weight**2, visits.mass_sq)
        return ratio(mass**2, squares, 0.0, groups.xp)[..., None]

    def ways(self, groups: Groups, visits: Visits) -> tuple[Callable[..., Array], ...]:
        """Variants of `values_at` at one bandwidth; a learned bandwidth also learns which variant is best."""
        return (self.values_at,)

    @property
    def weighting(self) -> Kernel:
        """The `Kernel` that ``kernel`` stands for."""
        return cast(Kernel, self.kernel)

    @property
    def selector(self) -> Selector:
        """The `Selector` that ``bandwidth`` stands for."""
        return cast(Selector, self.bandwidth)

    def weights(self, visits: Visits, bandwidth: Array | float) -> Array:
        """The kernel's weight of each visit, broadcastable to (..., P, V)."""
        return self.weighting.weight(visits.lag / bandwidth, namespace(visits.lag))

    @property
    def horizon(self) -> float:
        return self.selector.memory * self.weighting.support

    @property
    def max_visits(self) -> float:
        return self.selector.max_visits

    @property
    def pools_prompts(self) -> bool:
        return self.selector.pools_prompts

    def bandwidths(
        self, groups: Groups, visits: Visits, *, step: int | Array
    ) -> list[tuple[Array | float, Array | float]]:
        """Bandwidths of this step and their shares in the value; see `Selector.resolve`."""
        return self.selector.resolve(visits, groups.count, step=step, kernel=self.weighting)

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        if carry is not None and self.selector.running is not None:
            return self.serve(groups, visits, step=step, carry=carry).values
        mixed: Array = 0.0
        for bandwidth, share in self.bandwidths(groups, visits, step=step):
            mixed = mixed + share * self.values_at(groups, visits, bandwidth, step)
        return mixed

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        resolved = self.bandwidths(groups, visits, step=step)
        if carry is not None and self.selector.running is not None:
            settled = self.serve(groups, visits, step=step, carry=carry).settled
            resolved = cast(Self, settled).bandwidths(groups, visits, step=step)
        size: Array = 0.0
        for bandwidth, share in resolved:
            size = size + share * self.effective_completions_at(groups, visits, bandwidth)
        return size

    @property
    def in_order_only(self) -> bool:
        return False  # a learned bandwidth follows from the visits (`kaestat.asynchronous.recent_scores`)

    def initial_carry(self) -> Any:
        running = self.selector.running
        return None if running is None else running.initial_carry()

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> Any:
        return carry if self.selector.running is None else self.serve(groups, visits, step=step, carry=carry).carry

    def serve(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Served:
        if self.selector.running is not None:
            return learned_bandwidth.serve(self, groups, visits, step=step, carry=carry)
        settled = self
        if not isinstance(self.selector, FormulaSelector):
            settled = self.settled(self.bandwidths(groups, visits, step=step))
        return Served(settled.values(groups, visits, step=step), carry, settled)

    def settled(self, resolved: list[tuple[Array | float, Array | float]]) -> Self:
        """The same baseline with bandwidths that are already chosen, as of `Selector.resolve`."""
        return self._with("bandwidth", Settled(tuple(resolved)))

    def with_population(self, mean: float) -> Self:
        """The same baseline, whose value is the mean of a population where no prompt of the step has data.

        A learned bandwidth mixes candidates; those that reach no visit would mix a 0 into a prediction. A baseline that
        knows the value of a prompt without a past stays as it is.
        """
        return self if self.knows_unseen else self._with("nobody", mean)

    def less(self, center: float) -> Self:
        if center == 0:
            return self
        baseline = self.with_population(self.nobody - center)
        return baseline if isinstance(self.cold_start, str) else baseline._with("cold_start", self.cold_start - center)

    def _with(self, name: str, value: Any) -> Self:
        changed = copy(self)
        object.__setattr__(changed, name, value)
        return changed


def cold_start_value(groups: Groups, cold_start: ColdStart, nobody: float = 0.0) -> Array:
    """The given number, or the mean of the other prompts of the step and ``nobody`` without any; shape (..., P, 1)."""
    mass, carried = groups.other_prompts()
    if cold_start == "batch_mean":
        return ratio(carried, mass, nobody, groups.xp)
    return groups.xp.full_like(carried, float(cold_start))


def check_cold_start(cold_start: Any) -> None:
    """Raise unless ``cold_start`` is "batch_mean" or a finite number."""
    if not isinstance(cold_start, str):
        check_number("cold_start", cold_start)
    elif cold_start != "batch_mean":
        raise ValueError(f'cold_start must be "batch_mean" or a number, got {cold_start!r}.')
