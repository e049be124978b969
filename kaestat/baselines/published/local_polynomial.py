"""One-sided local polynomial regression on the lag, evaluated at the current step."""

from collections.abc import Iterator
from dataclasses import dataclass

from kaestat.baselines.kernel_mean import KernelBaseline, cold_start_value
from kaestat.core.arrays import Array, Groups, Visits, namespace, ratio
from kaestat.core.checks import check_whole
from kaestat.core.digits import ROUNDING
from kaestat.smoothing.selectors import Selector


@dataclass(frozen=True)
class LocalPolynomial(KernelBaseline):
    """Intercept at lag 0 of a kernel-weighted polynomial fit to past visits and the rest of the current group.

    A prompt with fewer than ``degree + 1`` distinct steps of positive weight gets the highest degree that they
    identify. Without any step, the value is that of a cold start. The fit may leave [0, 1]: clipping would break
    linearity and so unbiasedness of the risk.

    Parameters
    ----------
    kernel, bandwidth, cold_start
        See `KernelBaseline`; 10 steps unless given.
    degree : int
        Degree of the polynomial, 1 to 5.
    """

    bandwidth: float | str | Selector = 10.0
    degree: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("degree", self.degree, most=5)  # degree 0 is kae

    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        xp, at_zero, (others_mass, others_carried) = groups.xp, self.weighting.at_zero, groups.others()
        value = cold_start_value(groups, self.cold_start, self.nobody)
        for weight, determined in self._fits(visits, bandwidth, at_zero * others_mass):
            # Current completions sit at lag 0, where the powers are 0.
            mass = xp.vecdot(weight, visits.mass)[..., None] + at_zero * others_mass
            carried = xp.vecdot(weight, visits.carried)[..., None] + at_zero * others_carried
            value = xp.where(determined, carried / xp.where(determined, mass, 1.0), value)
        return value + xp.zeros_like(groups.reward)

    def effective_completions_at(self, groups: Groups, visits: Visits, bandwidth: Array | float) -> Array:
        xp = groups.xp
        found = xp.zeros_like(groups.reward[..., :1])
        for weight, determined in self._fits(visits, bandwidth, found):
            mass, squares = xp.vecdot(weight, visits.mass)[..., None], xp.vecdot(weight**2, visits.mass_sq)[..., None]
            found = xp.where(determined, ratio(mass**2, squares, 0.0, xp), found)
        return found

    def _fits(self, visits: Visits, bandwidth: Array | float, now: Array) -> Iterator[tuple[Array, Array]]:
        """Of each degree, the weight of every visit in the intercept, and whether visits and mass ``now`` fix it."""
        xp = namespace(visits.lag)
        kernel = self.weights(visits, bandwidth) * xp.astype(visits.mass > 0, visits.lag.dtype)
        in_use = xp.astype(kernel > 0, kernel.dtype)
        # Any common scale of the lags gives the same intercept; the largest lag in use keeps the moments near 1.
        lag = visits.lag * in_use
        lag = lag / xp.clip(xp.max(lag, axis=-1, keepdims=True), 1.0, None) if lag.shape[-1] else lag
        mass, past = kernel * visits.mass, xp.sum(in_use, axis=-1, keepdims=True)
        least = ROUNDING * xp.finfo(lag.dtype).eps

        def product(first: Array, second: Array) -> Array:
            return xp.vecdot(mass * first, second)[..., None]

        # What is left of the constant without the powers is its fit. Where that is rounding, it is not determined.
        ones = constant = xp.ones_like(lag)
        powers: list[tuple[Array, Array]] = []  # each orthogonal to those before it
        whole, fits = product(ones, ones) + now, past >= 0
        for degree in range(self.degree + 1):
            if degree:
                power = lag**degree
                square = product(power, power)
                for lower, over in powers:
                    power = power - product(power, lower) * over * lower
                size = product(power, power)
                fits = fits & (past >= degree) & (size > least * square)
                over = xp.where(fits, 1 / xp.where(fits, size, 1.0), 0.0)
                powers.append((power, over))
                constant = constant - product(constant, power) * over * power
            distinct = past + xp.astype(now > 0, past.dtype)
            yield kernel * constant, fits & (distinct > degree) & (product(constant, ones) + now > least * whole)


@dataclass(frozen=True)
class LocalLinear(LocalPolynomial):
    """`LocalPolynomial` of degree 1."""

    degree: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.degree != 1:
            raise ValueError(f"local_linear has degree 1, got {self.degree!r}; use local_polynomial.")
