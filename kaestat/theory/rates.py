"""Optimal bandwidths and rates over the Lipschitz class."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from kaestat.core.arrays import Array, check_shapes
from kaestat.core.checks import check_numbers, check_positive
from kaestat.smoothing.kernels import Kernel, as_kernel
from kaestat.theory.linear import LinearError


def integer_bandwidth_error(
    bandwidth: int | np.ndarray, *, lipschitz: float, noise_variance: float | np.ndarray
) -> LinearError:
    """Worst-case error of the triangular kernel mean with an integer bandwidth m, one observation at each lag 0..m-1.

    ``sum_k w_k k = (m - 1) / 3`` and ``sum_k w_k^2 = 2 (2 m + 1) / (3 m (m + 1))``, exactly.

    Parameters
    ----------
    bandwidth : int or ndarray of int
        m, 1 or more.
    lipschitz : float
        L per step.
    noise_variance : float or ndarray
        Variance of one observation.

    Raises
    ------
    ValueError, TypeError
        If a bandwidth is below 1, another number is negative, an argument is not a number, or shapes do not match.
    """
    m = check_numbers("bandwidth", bandwidth, least=1)
    lipschitz = check_positive("lipschitz", lipschitz, allow_zero=True)
    noise_variance = check_numbers("noise_variance", noise_variance, least=0)
    check_shapes(bandwidth=m, noise_variance=noise_variance)
    return LinearError(bias=lipschitz * (m - 1) / 3, variance=noise_variance * 2 * (2 * m + 1) / (3 * m * (m + 1)))


def optimal_integer_bandwidth(*, lipschitz: float, noise_variance: float) -> int:
    """The m that minimises the worst-case MSE of `integer_bandwidth_error`.

    Parameters
    ----------
    lipschitz : float
        L per step, positive.
    noise_variance : float
        Variance of one observation.

    Raises
    ------
    ValueError, TypeError
        If one is not positive, or the bandwidth is too large for exact integers in floating point.
    """
    lipschitz, noise_variance = check_positive("lipschitz", lipschitz), check_positive("noise_variance", noise_variance)
    # The asymptotic optimum is (6 s2 / L^2)^(1/3); the MSE is convex in m and the exact one lies within 2 of it.
    near = (6 * noise_variance / lipschitz**2) ** (1 / 3)
    if near > 2**52:
        raise ValueError(
            f"lipschitz {lipschitz:g} is too small compared with noise_variance {noise_variance:g}: "
            f"bandwidth {near:.3g}."
        )
    candidates = np.arange(max(1, math.floor(near) - 3), math.ceil(near) + 4)
    mse = integer_bandwidth_error(candidates, lipschitz=lipschitz, noise_variance=noise_variance).mse
    return int(candidates[np.argmin(mse)])


def local_rate_slopes(sizes: Sequence[int], *, lipschitz: float = 1.0, noise_variance: float = 0.25) -> np.ndarray:
    """Log-log slopes of the best worst-case MSE between successive sample sizes.

    There are n observations at lags k / n of a path with Lipschitz constant L on [0, 1]; each n has its best integer
    bandwidth. The slopes tend to -2/3, Stone's rate (paper, Corollary 1).

    Parameters
    ----------
    sizes : sequence of int, length S
        Increasing sample sizes n.
    lipschitz, noise_variance : float

    Returns
    -------
    ndarray, shape (S - 1,)

    Raises
    ------
    ValueError, TypeError
        If sizes do not increase, or a number is not positive.

    Examples
    --------
    >>> local_rate_slopes([10**3, 10**4, 10**5]).round(5)
    array([-0.6637 , -0.66603])
    """
    counts = check_numbers("sizes", sizes, least=1, ndim=1)
    if counts.ndim > 1 or not (np.diff(counts) > 0).all():
        raise ValueError(f"sizes must be increasing sample sizes, got {sizes!r}.")
    lipschitz, noise_variance = check_positive("lipschitz", lipschitz), check_positive("noise_variance", noise_variance)
    best = []
    for n in counts:
        problem = {"lipschitz": lipschitz / n, "noise_variance": noise_variance}
        best.append(float(integer_bandwidth_error(optimal_integer_bandwidth(**problem), **problem).mse))
    return np.diff(np.log(best)) / np.diff(np.log(counts))


def optimal_bandwidth(
    kernel: str | Kernel | Callable[[Array], Array], *, lipschitz: float, noise_variance: float, per_step: float = 1.0
) -> float:
    """Bandwidth (steps) that minimises the asymptotic worst-case MSE of the kernel mean.

    ``h* = (R s2 / (2 mu1^2 L^2 n))^(1/3)``. At h* the squared bias is half the variance, and the MSE is
    ``worst_case_mse_constant * (L s2 / n)^(2/3)`` of the kernel.

    Parameters
    ----------
    kernel : str, Kernel or callable
    lipschitz : float
        L per step.
    noise_variance : float
        s2, the variance of one reward.
    per_step : float
        n, completions per step: the group size times the share of steps at which the prompt is visited.

    Raises
    ------
    ValueError, TypeError
        If a number is not positive, or the kernel is unknown.
    """
    noise, drift = check_positive("noise_variance", noise_variance), check_positive("lipschitz", lipschitz)
    noise /= check_positive("per_step", per_step)
    return as_kernel(kernel).lipschitz_bandwidth_constant * (noise / drift**2) ** (1 / 3)
