"""One-sided local polynomial regression on the lag, evaluated at the current step."""

from dataclasses import dataclass

from kaestat.baselines.kae import KernelBaseline, cold_start_value
from kaestat.core.arrays import Array, Groups, Visits, namespace, ratio
from kaestat.core.checks import check_whole
from kaestat.smoothing.selectors import Selector

ROUNDING = 64.0  # of sums over visits, in units of the last place


@dataclass(frozen=True)
class LocalPolynomial(KernelBaseline):
    """Intercept at lag 0 of a kernel-weighted polynomial fit to past visits and the rest of the current group.

    Degree 0 is `Kae`; degree 1 (local linear) removes the first-order lag bias of a one-sided kernel mean
    when values drift, at the cost of variance (R* = 24/5 instead of 4/3 for the triangular kernel). It needs no
    boundary correction, which the fit at the edge includes.

    A prompt with fewer than ``degree + 1`` distinct steps of positive weight gets the highest degree that they
    identify. A step whose weight is lost in the rounding of the others does not count. Without any step, the value is
    the mean of the other prompts. The fit may leave [0, 1]: clipping would break linearity and so unbiasedness of the
    risk.

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
        value = ratio(carried, mass, cold_start_value(groups, "batch_mean", self.nobody), xp)
        distinct = past + xp.astype(others_mass > 0, past.dtype)
        # The normal equations, eliminated from power 1 upwards; no current reward enters these rows. What is then left
        # of the constant's row is its fit. Where rounding is all that is left, the fit is not determined.
        rows: list[tuple[Array, list[Array]]] = []
        least, fits = ROUNDING * xp.finfo(mass.dtype).eps, past > 0
        left_mass, left_carried = mass, carried
        for degree in range(1, self.degree + 1):
            row = [s[degree + j] for j in range(self.degree + 1)] + [t[degree]]
            for over, of_lower in rows:
                factor = of_lower[degree] * over
                row = [entry - factor * lower for entry, lower in zip(row, of_lower, strict=True)]
            fits = fits & (past >= degree) & (row[degree] > least * s[2 * degree])
            over = xp.where(fits, 1 / xp.where(fits, row[degree], 1.0), 0.0)
            rows.append((over, row))
            factor = row[0] * over
            left_mass, left_carried = left_mass - factor * row[0], left_carried - factor * row[-1]
            determined = fits & (distinct > degree) & (left_mass > least * mass)
            value = xp.where(determined, left_carried / xp.where(determined, left_mass, 1.0), value)
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
        weight = weight * visits.mass
        least, mass = ROUNDING * xp.finfo(weight.dtype).eps, xp.sum(weight, axis=-1, keepdims=True)
        powers: list[tuple[Array, Array]] = []  # each orthogonal to those before it; the constant to all
        constant = xp.ones_like(lag)
        distinct = xp.sum(in_use, axis=-1, keepdims=True)
        fits = distinct > 0
        for degree in range(1, self.degree + 1):
            power = lag**degree
            whole = xp.vecdot(weight * power, power)[..., None]
            for lower, over in powers:
                power = power - xp.vecdot(weight * power, lower)[..., None] * over * lower
            size = xp.vecdot(weight * power, power)[..., None]
            fits = fits & (distinct > degree) & (size > least * whole)
            over = xp.where(fits, 1 / xp.where(fits, size, 1.0), 0.0)
            powers.append((power, over))
            constant = constant - xp.vecdot(weight * constant, power)[..., None] * over * power
            left = xp.vecdot(weight, constant)[..., None]
            determined = fits & (left > least * mass)
            each = weight * constant / xp.where(determined, left, 1.0)  # of a visit, with its mass
            squares = xp.sum(each**2 * ratio(visits.mass_sq, visits.mass**2, 0.0, xp), axis=-1, keepdims=True)
            found = xp.where(determined, ratio(xp.ones_like(squares), squares, 0.0, xp), found)
        return found


@dataclass(frozen=True)
class LocalLinear(LocalPolynomial):
    """`LocalPolynomial` of degree 1."""

    degree: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.degree != 1:
            raise ValueError(f"local_linear has degree 1, got {self.degree!r}; use local_polynomial.")
