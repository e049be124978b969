"""One-sided kernels on [0, inf) and their exact constants.

A kernel weighs a past visit by ``K(lag / bandwidth)``; it is non-negative and integrates to one on [0, inf)
(Assumption 3 of the paper asks for support [0, 1]; the exponential and half-normal kernels do without).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

from kaestat.core.arrays import Array, Namespace, namespace
from kaestat.core.spelling import nearest

LEAST_WEIGHT = 1e-100  # in double precision


@dataclass(frozen=True)
class Kernel(ABC):
    """A one-sided kernel with its constants; call it with scaled lags ``u = lag / bandwidth``.

    Values at ``u < 0`` (the future) are zero, and so are weights below 1e-100 (in single precision 1e-15).

    Attributes
    ----------
    name : str
        The name for `as_kernel`.
    support : float
        Largest ``u`` with positive weight; ``inf`` for the exponential and half-normal kernels.
    mu1 : float
        First moment ``int u K(u) du``: the worst-case bias is ``L h mu1``.
    roughness : float
        ``R = int K(u)^2 du``: the variance is ``sigma^2 R / (n h)``.
    """

    name: str
    support: float
    mu1: float
    roughness: float

    def __call__(self, u: Array) -> Array:
        xp = namespace(u)
        return xp.where(u >= 0, self.weight(xp.where(u >= 0, u, xp.zeros_like(u)), xp), xp.zeros_like(u))

    @abstractmethod
    def weight(self, u: Array, xp: Namespace) -> Array:
        """K(u) for ``u >= 0``, without checks; the inner loop of every kernel estimator."""

    @cached_property
    def at_zero(self) -> float:
        """K(0), the weight of the current step."""
        return float(self(np.zeros(1))[0])

    @property
    def lipschitz_bandwidth_constant(self) -> float:
        """``(R / (2 mu1^2))^(1/3)``, so that ``h* = constant (sigma^2 / (L^2 n))^(1/3)`` (local constant fit)."""
        return (self.roughness / (2 * self.mu1**2)) ** (1 / 3)

    @property
    def worst_case_mse_constant(self) -> float:
        """``3 (R mu1 / 2)^(2/3)``: worst-case MSE at ``h*`` in units of ``(L sigma^2 / n)^(2/3)``."""
        return 3 * (self.roughness * self.mu1 / 2) ** (2 / 3)


@dataclass(frozen=True)
class Triangular(Kernel):
    """``2 max(1 - u, 0)``: the paper's kernel, and the exact minimax linear weights over the Lipschitz class."""

    name: str = "triangular"
    support: float = 1.0
    mu1: float = 1 / 3
    roughness: float = 4 / 3

    def weight(self, u: Array, xp: Namespace) -> Array:
        return 2.0 - 2.0 * xp.clip(u, None, 1.0)


@dataclass(frozen=True)
class Uniform(Kernel):
    """``1`` on [0, 1), a moving average. It is open on the right: an integer bandwidth m spans lags 0..m-1."""

    name: str = "uniform"
    support: float = 1.0
    mu1: float = 1 / 2
    roughness: float = 1.0

    def weight(self, u: Array, xp: Namespace) -> Array:
        return xp.where(u < 1, xp.ones_like(u), xp.zeros_like(u))


@dataclass(frozen=True)
class Epanechnikov(Kernel):
    """``1.5 (1 - u^2)`` on [0, 1]."""

    name: str = "epanechnikov"
    support: float = 1.0
    mu1: float = 3 / 8
    roughness: float = 6 / 5

    def weight(self, u: Array, xp: Namespace) -> Array:
        inside = xp.clip(u, None, 1.0)  # a square of all could overflow
        return 1.5 - 1.5 * inside * inside


@dataclass(frozen=True)
class HalfNormal(Kernel):
    """``sqrt(2 / pi) exp(-u^2 / 2)``."""

    name: str = "half-normal"
    support: float = math.inf
    mu1: float = math.sqrt(2 / math.pi)
    roughness: float = 1 / math.sqrt(math.pi)

    def weight(self, u: Array, xp: Namespace) -> Array:
        near = xp.clip(u, None, 40.0)  # 0 beyond; a square of all could overflow
        return _felt(math.sqrt(2 / math.pi) * xp.exp(-0.5 * near * near), xp)


@dataclass(frozen=True, init=False)
class Exponential(Kernel):
    """``c rho^u`` with ``c = -log(rho)``; the default ``rho = 1/e`` makes the bandwidth the decay time in steps.

    Parameters
    ----------
    rho : float
        Decay over one bandwidth, in (0, 1).

    Raises
    ------
    ValueError
        If ``rho`` is outside (0, 1).
    """

    rho: float

    def __init__(self, rho: float = math.exp(-1)):
        if not _is_number(rho) or not 0 < rho < 1:
            raise ValueError(f"Exponential kernel: rho must lie in (0, 1), got {rho!r}.")
        c = -math.log(rho)
        for field, value in {
            "name": "exponential",
            "support": math.inf,
            "mu1": 1 / c,
            "roughness": c / 2,
            "rho": float(rho),
        }.items():
            object.__setattr__(self, field, value)

    def weight(self, u: Array, xp: Namespace) -> Array:
        return _felt(self.at_zero * xp.exp(-self.at_zero * u), xp)

    @property
    def at_zero(self) -> float:
        return -math.log(self.rho)


@dataclass(frozen=True, init=False, eq=False)
class CallableKernel(Kernel):
    """A user's own function of the scaled lag ``u >= 0``, checked by quadrature, and at every lag that it weighs.

    Parameters
    ----------
    function : callable
        Maps an array of scaled lags to non-negative weights, elementwise.
    support : float
        Largest ``u`` with positive weight; a finite one keeps the history short.

    Raises
    ------
    ValueError
        If the function is negative somewhere, zero at 0, or does not integrate to one.
    """

    function: Callable[[Array], Array]

    def __init__(self, function: Callable[[Array], Array], support: float = math.inf):
        if not _is_number(support) or not support > 0:
            raise ValueError(f"kernel support must be positive, got {support!r}.")
        name = getattr(function, "__name__", "callable")
        for field, value in {"name": name, "support": float(support), "function": function}.items():
            object.__setattr__(self, field, value)
        if not self._at(0.0) > 0:
            raise ValueError(f"kernel {self.name!r}: K(0) must be positive, got {self._at(0.0)!r}.")
        mass = self._integral(0, 1)
        if not abs(mass - 1) < 1e-4:
            raise ValueError(
                f"kernel {self.name!r} integrates to {mass:.6g} on [0, {support:g}), not to 1: divide it by "
                f"{mass:.6g}, and give support= if it is zero beyond some point."
            )

    @cached_property  # type: ignore[misc]  # a field of the base class, here computed when it is asked for
    def mu1(self) -> float:
        """First moment, by quadrature."""
        return self._integral(1, 1)

    @cached_property  # type: ignore[misc]
    def roughness(self) -> float:
        """Integral of the square, by quadrature."""
        return self._integral(0, 2)

    def weight(self, u: Array, xp: Namespace) -> Array:
        weight = self.function(u)
        if self.support < math.inf:
            weight = xp.where(u <= self.support, weight, xp.zeros_like(weight))
        fine = (weight >= 0) & (weight < math.inf)
        if not bool(xp.all(fine)):
            lag, value = float(u[~fine][0]), float(weight[~fine][0])
            raise ValueError(f"kernel {self.name!r} must be finite and non-negative, got K({lag:g}) = {value!r}.")
        return _felt(weight, xp)

    def _at(self, u: float) -> float:
        try:
            return float(self.weight(np.array([u]), np)[0])
        except (TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"kernel {self.name!r} must map an array of scaled lags to weights ({error}).") from error

    def _integral(self, power: int, exponent: int) -> float:
        from scipy.integrate import quad

        return quad(lambda u: u**power * self._at(u) ** exponent, 0, self.support, limit=200)[0]


def _felt(weight: Array, xp: Namespace) -> Array:
    """The weights, and 0 for those so small that their squares vanish or their inverses overflow."""
    least = 1e-15 if weight.dtype == xp.float32 else LEAST_WEIGHT
    return xp.where(weight >= least, weight, 0.0)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel for kernel in (Triangular(), Exponential(), Uniform(), Epanechnikov(), HalfNormal())
}


def as_kernel(kernel: str | Kernel | Callable[[Array], Array]) -> Kernel:
    """The `Kernel` with that name, of a user's function, or unchanged.

    Parameters
    ----------
    kernel : str, Kernel or callable
        One of ``KERNELS``, an instance, or a function of the scaled lag.

    Raises
    ------
    ValueError
        If the name is unknown or the function is not a kernel.
    TypeError
        If it has another type.
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        if kernel not in KERNELS:
            near = nearest(kernel, KERNELS)
            raise ValueError(f"kernel: unknown name {kernel!r}{near}; choose one of {', '.join(KERNELS)}.")
        return KERNELS[kernel]
    if callable(kernel):
        return CallableKernel(kernel)
    raise TypeError(f"kernel must be a name, a Kernel or a function of the scaled lag, got {type(kernel).__name__}.")
