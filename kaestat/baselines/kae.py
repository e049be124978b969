"""KAE: kernelized advantage estimation, Algorithm 1 of the paper."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from kaestat.baselines.base import Baseline, Served
from kaestat.baselines.newest_sums import NewestSums
from kaestat.core.arrays import Array, Groups, Namespace, Visits, namespace, over_prompts, ratio
from kaestat.core.checks import check_number
from kaestat.smoothing.kernels import Kernel, Triangular, as_kernel
from kaestat.smoothing.selectors import Fixed, Selector, as_selector
from kaestat.smoothing.selectors.base import FormulaSelector
from kaestat.smoothing.selectors.running_scores import Ahead, RunningScores
from kaestat.smoothing.selectors.settled import Settled

NORMALIZATIONS = ("nadaraya-watson", "algorithm1")
APART = ("prompt_ids", "divergence", "state", "sums")  # what no kernel mean reads


@dataclass(frozen=True)
class KernelBaseline(Baseline):
    """Base class of the baselines that weigh visits by a kernel of their lag.

    Parameters
    ----------
    kernel : str, Kernel or callable
        One-sided kernel; see `kaestat.smoothing.kernels.as_kernel`.
    bandwidth : float, str or Selector
        A number of steps (``inf`` gives all visits equal weights), the name of a selector, or a selector.
        ``"auto"`` (`kaestat.smoothing.selectors.Auto`) learns it along the run.
    """

    kernel: str | Kernel | Callable[[Array], Array] = "triangular"
    bandwidth: float | str | Selector = "auto"

    takes_weights: ClassVar[bool] = True
    relative: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True
    rule_of_thumb: ClassVar[float] = 10.0  # returns of the prompts: the bandwidth before anything is learned
    nobody: ClassVar[float] = 0.0  # the value where no prompt of the step has data; see `with_population`

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", as_kernel(self.kernel))
        object.__setattr__(self, "bandwidth", as_selector(self.bandwidth))

    @property
    def weighting(self) -> Kernel:
        """The `Kernel` that ``kernel`` stands for."""
        return cast(Kernel, self.kernel)

    @property
    def selector(self) -> Selector:
        """The `Selector` that ``bandwidth`` stands for."""
        return cast(Selector, self.bandwidth)

    @property
    def horizon(self) -> float:
        return self.selector.memory * self.weighting.support

    def bandwidths(
        self, groups: Groups, visits: Visits, *, step: int | Array
    ) -> list[tuple[Array | float, Array | float]]:
        """Bandwidths of this step and their shares in the value; see `Selector.resolve`."""
        if type(self.selector) is Fixed:
            return [(self.selector.steps, 1.0)]  # counting completions would cost more than all else
        return self.selector.resolve(visits, groups.count, step=step, kernel=self.weighting)

    @property
    def kernel_sums_suffice(self) -> bool:
        """Whether `values_at` needs only `KernelSums` of the past of unweighted completions."""
        return False

    @property
    def max_visits(self) -> float:
        return self.selector.max_visits

    def initial_carry(self) -> Any:
        running = self.selector.running
        return None if running is None else running.initial_carry()

    def serve(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Served:
        running = self.selector.running
        if running is None:
            learned = not isinstance(self.selector, FormulaSelector)
            settled = self._settled(self.bandwidths(groups, visits, step=step)) if learned else self
            values = settled.values(groups, visits, step=step, carry=carry)
            return Served(values, self.advance(carry, groups, visits, step=step), settled)
        carry = running.initial_carry() if carry is None else carry
        ahead, of_each = self._tried(running, carry, groups, visits, step)
        return Served(
            values=groups.xp.sum(ahead.shares * of_each, axis=0),
            carry=running.after(carry, ahead, of_each, groups, step=step),
            settled=self._settled(ahead.pairs()),
        )

    def serve_along(self, groups: Groups, visits: Visits, *, step: Array, carry: Any = None) -> Served:
        """`serve` for consecutive steps along the first axis, each with the carry of the one before it."""
        running = cast(RunningScores, self.selector.running)
        carry = running.initial_carry() if carry is None else carry
        begun = running.begun(carry, groups, visits, step=step, ways=len(self.ways(groups, visits)))
        ahead, of_each = self._tried(running, begun, groups, visits, step)
        after = carry
        for _ in self.ways(groups, visits):  # losses of ways follow from the shares of the candidates within each
            before, after = running.along(carry, begun, ahead, of_each, groups, step=step)
            ahead = self._ahead(running, before, groups, visits, step)
        return Served(groups.xp.sum(ahead.shares * of_each, axis=0), after, self._settled(ahead.pairs()))

    def _ahead(self, running: RunningScores, carry: Any, groups: Groups, visits: Visits, step: int | Array) -> Ahead:
        n_ways, rule = len(self.ways(groups, visits)), self.rule_of_thumb
        return running.ahead(carry, groups, visits, step=step, kernel=self.weighting, rule=rule, ways=n_ways)

    def scores(self, groups: Groups, visits: Visits, *, step: int) -> dict[str, np.ndarray]:
        """Scores of the candidates of a learned bandwidth on one step (`RunningScores.of_step`)."""
        running = cast(RunningScores, self.selector.running)
        ahead, of_each = self._tried(running, running.initial_carry(), groups, visits, step)
        return running.of_step(ahead, of_each, groups, step=step, kernel=self.weighting)

    def _tried(
        self, running: RunningScores, carry: Any, groups: Groups, visits: Visits, step: int | Array
    ) -> tuple[Ahead, Array]:
        """The candidates of a learned bandwidth, and their values, way by way; (K B, ..., P, G)."""
        ahead = self._ahead(running, carry, groups, visits, step)
        past = _with_axis(visits)
        if self.kernel_sums_suffice and type(self.weighting) is Triangular and NewestSums.pays(groups, visits):
            past = replace(past, sums=NewestSums(visits, ahead.bandwidths))
        row = _with_axis(groups), past, ahead.bandwidths, step
        of_each = [way(*row) for way in self.ways(groups, past)]
        return ahead, of_each[0] if len(of_each) == 1 else groups.xp.concat(of_each, axis=0)

    def with_population(self, mean: float) -> Self:
        """The same baseline, whose value is the mean of a population where no prompt of the step has data.

        A learned bandwidth mixes candidates; those that reach no visit would mix a 0 into a prediction. A baseline that
        knows the value of a prompt without a past stays as it is.
        """
        if self.knows_unseen:
            return self
        found = copy(self)
        object.__setattr__(found, "nobody", mean)
        return found

    def less(self, center: float) -> Self:
        if center == 0:
            return self
        found, cold_start = self.with_population(self.nobody - center), getattr(self, "cold_start", "batch_mean")
        if not isinstance(cold_start, str):
            object.__setattr__(found, "cold_start", cold_start - center)
        return found

    def _settled(self, resolved: list[tuple[Array | float, Array | float]]) -> KernelBaseline:
        settled = copy(self)
        object.__setattr__(settled, "bandwidth", Settled(tuple(resolved)))
        return settled

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> Any:
        running = self.selector.running
        return carry if running is None else self.serve(groups, visits, step=step, carry=carry).carry

    @property
    def in_order_only(self) -> bool:
        return False  # a learned bandwidth follows from the visits (`kaestat.asynchronous.recent_scores`)

    @property
    def pools_prompts(self) -> bool:
        return self.selector.pools_prompts

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        if carry is not None and self.selector.running is not None:
            return self.serve(groups, visits, step=step, carry=carry).values
        mixed: Array | None = None
        for bandwidth, share in self.bandwidths(groups, visits, step=step):
            value = self.values_at(groups, visits, bandwidth, step)
            shared = value if isinstance(share, float) and share == 1.0 else share * value
            mixed = shared if mixed is None else mixed + shared
        return mixed

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        if carry is not None and self.selector.running is not None:
            settled = self.serve(groups, visits, step=step, carry=carry).settled
            return settled.effective_completions(groups, visits, step=step)
        sizes = [
            share * self.effective_completions_at(groups, visits, bandwidth)
            for bandwidth, share in self.bandwidths(groups, visits, step=step)
        ]
        return sum(sizes[1:], start=sizes[0])

    def effective_completions_at(self, groups: Groups, visits: Visits, bandwidth: Array | float) -> Array:
        """`effective_completions` at one bandwidth; by default of the kernel mean, ``(sum k W)^2 / sum k^2 W^2``."""
        xp = groups.xp
        weight = self.weighting.weight(visits.lag / bandwidth, xp)
        mass, squares = xp.vecdot(weight, visits.mass), xp.vecdot(weight**2, visits.mass_sq)
        return ratio(mass**2, squares, 0.0, xp)[..., None]

    def ways(self, groups: Groups, visits: Visits) -> tuple[Callable[..., Array], ...]:
        """Variants of `values_at` at one bandwidth; a learned bandwidth also learns which variant is best."""
        return (self.values_at,)

    @abstractmethod
    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        """Values at one bandwidth (steps; a number or broadcastable to (..., P, 1)), shape (..., P, G)."""


def _with_axis(arrays: Groups | Visits) -> Any:
    """The same with one more leading axis, for candidates."""
    one_more = {name: None if a is None or name in APART else a[None] for name, a in vars(arrays).items()}
    if isinstance(arrays, Groups):
        one_more["prompt_ids"] = arrays.prompt_ids
    return type(arrays)(**one_more)


@dataclass(frozen=True)
class Kae(KernelBaseline):
    """Kernel-weighted mean of the prompt's past rewards and the rest of its current group.

    ::

        Vhat_g = [ sum_v K(l_v / b) S_v  +  K(0) (sum_k Z_k - Z_g) ] / M

    with past visits v of lag ``l_v``, count ``n_v`` and reward sum ``S_v`` (paper, Algorithm 1, line 8), and

    - ``normalization="nadaraya-watson"``: ``M = sum_v K(l_v / b) n_v + K(0) (G - 1)``, the paper's experiments;
    - ``normalization="algorithm1"``: ``M = (b / i) sum_v n_v + K(0) (G - 1)`` over the whole history, the paper's
      theory (``h |H_i| + K(0) (G - 1)``); it equals the first only when visits are evenly spread over the steps.

    With weights, sums of W and of W Z replace counts and rewards. If heavy completions are rare
    (wrong answers late in a run), the value of a prompt without one so far is far off; `KaeEb` learns from other
    prompts.

    Parameters
    ----------
    kernel, bandwidth
        See `KernelBaseline`. The bandwidth is learned along the run unless given; the paper uses 10 steps.
    normalization : {"nadaraya-watson", "algorithm1"}
        The denominator.
    cold_start : "batch_mean" or float
        The value if M is 0 (a lone completion of a prompt without usable past): the mean of the other prompts
        of this step (0 if there are none), or the given number. A learned bandwidth mixes it in for candidates that
        reach no visit, and scores them by it; where a step is one completion it is 0.
    """

    normalization: Literal["nadaraya-watson", "algorithm1"] = "nadaraya-watson"
    cold_start: Literal["batch_mean"] | float = "batch_mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.normalization, str) or self.normalization not in NORMALIZATIONS:
            raise ValueError(f"normalization must be one of {NORMALIZATIONS}, got {self.normalization!r}.")
        check_cold_start(self.cold_start)
        if self.normalization == "algorithm1" and self.bandwidth == Fixed(math.inf):
            raise ValueError('normalization="algorithm1" divides by the bandwidth, so bandwidth must be finite.')

    @property
    def horizon(self) -> float:
        return math.inf if self.normalization == "algorithm1" else super().horizon

    @property
    def refuses_prior(self) -> str | None:
        if self.normalization == "nadaraya-watson":
            return None
        return (
            'normalization="algorithm1" takes the completions of the whole history for evenly spread over the steps, '
            "which those of a prior are not"
        )

    @property
    def kernel_sums_suffice(self) -> bool:
        return self.normalization == "nadaraya-watson"

    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        xp = groups.xp
        if visits.sums is not None:
            value, known = self._smoothed(groups, visits, bandwidth, step)
        else:
            value, known = over_prompts(self._smoothed, groups, visits, bandwidth, step)
        if bool(xp.all(known)):
            return value
        return xp.where(known, value, cold_start_value(groups, self.cold_start, self.nobody))

    def _smoothed(
        self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array
    ) -> tuple[Array, Array]:
        """Value of each completion, and where there is one: M > 0."""
        xp, kernel = groups.xp, self.weighting
        past_mass, past_carried = kernel_sums(visits, kernel, bandwidth)
        if self.normalization == "algorithm1":
            past_mass = _whole_history_mass(visits, bandwidth, step, xp)
        others_mass, others_carried = groups.others()
        mass = past_mass / kernel.at_zero + others_mass
        known = mass > 0
        return (past_carried / kernel.at_zero + others_carried) / xp.where(known, mass, math.inf), known


def kernel_sums(visits: Visits, kernel: Kernel, bandwidth: Array | float) -> tuple[Array, Array]:
    """Kernel-weighted mass and carried reward of the past visits; both (..., P, 1)."""
    if visits.sums is not None:
        return visits.sums.mass, visits.sums.carried
    xp = namespace(visits.lag)
    weight = kernel.weight(visits.lag / bandwidth, xp)
    return xp.vecdot(weight, visits.mass)[..., None], xp.vecdot(weight, visits.carried)[..., None]


def cold_start_value(groups: Groups, cold_start: Literal["batch_mean"] | float, nobody: float = 0.0) -> Array:
    """Value of a prompt without any data, ``nobody`` if no other prompt is there; shape (..., P, 1)."""
    xp = groups.xp
    mass, carried = groups.other_prompts()
    if cold_start == "batch_mean":
        return ratio(carried, mass, nobody, xp)
    return xp.full_like(carried, float(cold_start))


def check_cold_start(cold_start: Any) -> None:
    """Raise unless ``cold_start`` is "batch_mean" or a finite number."""
    if isinstance(cold_start, str):
        if cold_start != "batch_mean":
            raise ValueError(f'cold_start must be "batch_mean" or a number, got {cold_start!r}.')
    else:
        check_number("cold_start", cold_start)


def _whole_history_mass(visits: Visits, bandwidth: Array | float, step: int | Array, xp: Namespace) -> Array:
    elapsed = xp.clip(xp.asarray(step, dtype=visits.mass.dtype), 1.0, None)
    return bandwidth / elapsed * xp.sum(visits.mass, axis=-1, keepdims=True)
