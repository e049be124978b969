"""One-sided local polynomial regression on the lag, evaluated at the current step."""

from __future__ import annotations

from dataclasses import dataclass

from kaestat.baselines.kae import KernelBaseline, cold_start_value
from kaestat.core.arrays import Array, Groups, Namespace, Visits, namespace, ratio
from kaestat.core.checks import check_whole
from kaestat.smoothing.selectors import Selector


@dataclass(frozen=True)
class LocalPolynomial(KernelBaseline):
    """Intercept at lag 0 of a kernel-weighted polynomial fit to past visits and the rest of the current group.

    Degree 0 is `Kae`; degree 1 (local linear) removes the first-order lag bias of a one-sided kernel mean
    when values drift, at the cost of variance (R* = 24/5 instead of 4/3 for the triangular kernel). It needs no
    boundary correction, which the fit at the edge includes.

    A prompt with fewer than ``degree + 1`` distinct steps of positive weight gets the highest degree that they
    identify; without any, it gets the mean of the other prompts. The fit may leave [0, 1]: clipping would break
    linearity and so unbiasedness of the risk.

    Parameters
    ----------
    kernel, bandwidth
        See `KernelBaseline`; 10 steps unless given.
    degree : int
        Degree of the polynomial, 1 to 5.
    """

    bandwidth: float | str | Selector = 10.0
    degree: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("degree", self.degree, most=5)  # degree 0 is kae

    @property
    def kernel_sums_suffice(self) -> bool:
        return self.degree == 1

    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        xp, kernel = groups.xp, self.weighting
        if (made := visits.sums) is not None:
            moments = [made.mass, made.mass_lag, made.mass_lag_sq], [made.carried, made.carried_lag]
            return self._from_moments(groups, *moments, made.visits)
        # Any common scale of the lags gives the same intercept; the largest lag in use keeps the moments near 1.
        u = visits.lag / bandwidth
        weight = kernel.weight(u, namespace(u)) * xp.astype(visits.mass > 0, u.dtype)
        in_use = xp.astype(weight > 0, u.dtype)
        scaled = visits.lag * in_use
        if scaled.shape[-1] > 0:
            scaled = scaled / xp.clip(xp.max(scaled, axis=-1, keepdims=True), 1.0, None)
        powers = [xp.ones_like(scaled)]
        for _ in range(2 * self.degree):
            powers.append(powers[-1] * scaled)
        s = [xp.vecdot(weight * power, visits.mass)[..., None] for power in powers]
        t = [xp.vecdot(weight * power, visits.carried)[..., None] for power in powers[: self.degree + 1]]
        return self._from_moments(groups, s, t, xp.sum(in_use, axis=-1, keepdims=True))

    def _from_moments(self, groups: Groups, s: list[Array], t: list[Array], past: Array) -> Array:
        """Values from the kernel-weighted moments of the lags, and the number of visits that are in them."""
        xp, kernel = groups.xp, self.weighting
        # Current completions sit at lag 0 and touch only the zeroth moments.
        others_mass, others_carried = groups.others()
        mass = s[0] + kernel.at_zero * others_mass
        carried = t[0] + kernel.at_zero * others_carried
        value = ratio(carried, mass, cold_start_value(groups, "batch_mean"), xp)
        distinct = past + xp.astype(others_mass > 0, past.dtype)
        for degree in range(1, self.degree + 1):
            size = range(1, degree + 1)
            block = xp.stack([xp.concat([s[j + k] for k in size], axis=-1) for j in size], axis=-2)  # (..., P, d, d)
            enough = past >= degree
            if degree > 1:  # the weights of old visits may vanish beside those of newer ones
                enough = enough & (xp.linalg.det(block)[..., None] != 0)
            intercept = _intercept(mass, carried, s, t, block, enough, xp)
            value = xp.where(enough & (distinct > degree), intercept, value)
        return value + xp.zeros_like(groups.reward)

    def effective_completions_at(self, groups: Groups, visits: Visits, bandwidth: Array | float) -> Array:
        xp = groups.xp
        found = super().effective_completions_at(groups, visits, bandwidth)
        weight = self.weighting.weight(visits.lag / bandwidth, xp) * xp.astype(visits.mass > 0, visits.lag.dtype)
        in_use = xp.astype(weight > 0, weight.dtype)
        if weight.shape[-1] == 0:
            return found
        lag = visits.lag * in_use
        lag = lag / xp.clip(xp.max(lag, axis=-1, keepdims=True), 1.0, None)
        distinct = xp.sum(in_use, axis=-1, keepdims=True)
        for degree in range(1, self.degree + 1):
            powers = xp.stack([lag**k for k in range(degree + 1)], axis=-1)  # (..., P, V, d + 1)
            gram = xp.matmul(xp.matrix_transpose(powers), (weight * visits.mass)[..., None] * powers)
            enough = distinct > degree
            identity = xp.eye(degree + 1, dtype=weight.dtype) + xp.zeros_like(gram)
            gram = xp.where(enough[..., None], gram, identity)
            first = xp.zeros_like(gram[..., :1]) + identity[..., :1]
            each = weight * xp.matmul(powers, xp.linalg.pinv(gram) @ first)[..., 0]  # of each completion
            squares = xp.sum(each**2 * visits.mass_sq, axis=-1, keepdims=True)
            found = xp.where(enough, ratio(xp.ones_like(squares), squares, 0.0, xp), found)
        return found


@dataclass(frozen=True)
class LocalLinear(LocalPolynomial):
    """`LocalPolynomial` of degree 1."""

    degree: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.degree != 1:
            raise ValueError(f"local_linear has degree 1, got {self.degree!r}; use local_polynomial.")


def _intercept(
    mass: Array, carried: Array, s: list[Array], t: list[Array], block: Array, enough: Array, xp: Namespace
) -> Array:
    """Intercept of the normal equations by the Schur complement of the slope block, which no current reward enters."""
    degree = block.shape[-1]
    size = range(1, degree + 1)
    identity = xp.eye(degree, dtype=mass.dtype) + xp.zeros_like(block)
    block = xp.where(enough[..., None], block, identity)
    masses, rewards = xp.concat([s[j] for j in size], axis=-1), xp.concat([t[j] for j in size], axis=-1)
    right = xp.stack([masses + xp.zeros_like(rewards), rewards + xp.zeros_like(masses)], axis=-1)
    solved = right / block if degree == 1 else xp.linalg.solve(block, right)  # (..., P, d, 2)
    reduced = xp.matmul(masses[..., None, :], solved)[..., 0, :]  # (..., P, 2)
    return ratio(carried - reduced[..., 1:], mass - reduced[..., :1], 0.0, xp)
