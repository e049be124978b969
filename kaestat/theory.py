"""Closed forms: exact bias, variance and MSE of any linear smoother, the minimax weights, and optimal bandwidths.

A linear smoother estimates the current value V(0) by ``sum_k w_k Y_k`` with ``sum_k w_k = 1``, from independent
observations Y_k of ``V(lag_k)`` with variance s_k. Over the Lipschitz class ``|V(s) - V(t)| <= L |s - t|`` its worst
bias and MSE are exact numbers too, so rates are slopes of functions, not of simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from kaestat.arrays import Array
from kaestat.baselines.base import check_positive
from kaestat.kernels import Kernel, as_kernel


@dataclass(frozen=True, eq=False)
class LinearError:
    """Error of a linear smoother: ``bias``, ``variance`` and ``mse = bias^2 + variance``, arrays of shape (...)."""

    bias: Array
    variance: Array

    @property
    def mse(self) -> Array:
        """Mean squared error."""
        return self.bias**2 + self.variance


def linear_error(weights: Array, path: Array, noise_variance: float | Array, *, target: float | Array) -> LinearError:
    """Exact error of a linear smoother on a known value path.

    Parameters
    ----------
    weights : array, shape (..., K)
        Weight of each observation; they need not sum to 1.
    path : array, shape (..., K)
        Value at the time of each observation.
    noise_variance : float or array, shape (..., K)
        Variance of each observation.
    target : float or array, shape (...)
        The value that is estimated.

    Examples
    --------
    >>> error = linear_error(np.array([0.75, 0.25]), np.array([0.5, 0.1]), 0.2, target=0.5)
    >>> round(float(error.bias), 6), round(float(error.variance), 6), round(float(error.mse), 6)
    (-0.1, 0.125, 0.135)
    """
    xp = array_namespace(weights)
    return LinearError(
        bias=xp.sum(weights * path, axis=-1) - target, variance=xp.sum(weights**2 * noise_variance, axis=-1)
    )


def worst_case_bias(weights: Array, lags: Array, lipschitz: float | Array) -> Array:
    """Largest ``|sum_k w_k V(lag_k) - V(0)|`` over the Lipschitz class, for weights that sum to 1.

    For non-negative weights it is ``L sum_k w_k lag_k``, attained by a value that drifts at full speed in one
    direction. In general a value may turn where the weights beyond a lag change sign::

        L sum_j (lag_(j) - lag_(j-1)) |sum_{k: lag_k >= lag_(j)} w_k|       lags sorted, lag_(0) = 0

    Parameters
    ----------
    weights, lags : array, shape (..., K)
        Lags are 0 or more, in any order.
    lipschitz : float or array, shape (...)
        L, per unit of the lags.

    Returns
    -------
    array, shape (...)
    """
    xp = array_namespace(weights)
    shape = np.broadcast_shapes(weights.shape, lags.shape)
    weights, lags = xp.broadcast_to(weights, shape), xp.broadcast_to(lags, shape)
    order = xp.argsort(lags, axis=-1)
    sorted_lags, sorted_weights = (xp.take_along_axis(a, order, axis=-1) for a in (lags, weights))
    gaps = sorted_lags - xp.concat([xp.zeros_like(sorted_lags[..., :1]), sorted_lags[..., :-1]], axis=-1)
    beyond = xp.flip(xp.cumulative_sum(xp.flip(sorted_weights, axis=-1), axis=-1), axis=-1)
    return lipschitz * xp.sum(gaps * xp.abs(beyond), axis=-1)


def worst_case_error(
    weights: Array, lags: Array, noise_variance: float | Array, lipschitz: float | Array
) -> LinearError:
    """Worst-case bias, variance and MSE over the Lipschitz class; arguments as in `linear_error`, `worst_case_bias`."""
    xp = array_namespace(weights)
    return LinearError(
        bias=worst_case_bias(weights, lags, lipschitz), variance=xp.sum(weights**2 * noise_variance, axis=-1)
    )


def minimax_weights(lags: np.ndarray, noise_variance: float | np.ndarray, lipschitz: float) -> np.ndarray:
    """The linear smoother with the least worst-case MSE over the Lipschitz class, exactly.

    It minimises ``(L sum w_k lag_k)^2 + sum s_k w_k^2`` subject to ``sum w_k = 1``. The Karush-Kuhn-Tucker conditions
    give ``w_k`` proportional to ``(tau - lag_k)_+ / s_k``, a triangular kernel of bandwidth tau, where tau solves
    ``sum_k (tau - lag_k)_+ lag_k / s_k = 1 / L^2``. The left side is the largest of the lines ``tau A_j - B_j`` with
    ``A_j``, ``B_j`` the sums of ``lag / s`` and ``lag^2 / s`` over the j smallest lags, hence
    ``tau = min_j (1 / L^2 + B_j) / A_j``.

    Parameters
    ----------
    lags : ndarray, shape (..., K)
        0 or more, in any order.
    noise_variance : float or ndarray, shape (..., K)
        Variance of each observation, positive; for a visit of n completions that of their mean.
    lipschitz : float
        L, per unit of the lags; 0 gives the inverse-variance mean.

    Returns
    -------
    ndarray, shape (..., K)
        Non-negative, summing to 1.

    Raises
    ------
    ValueError
        If there are no lags, one is negative, or a variance is not positive.

    Examples
    --------
    >>> minimax_weights(np.arange(4.0), 0.25, 0.25).round(6)
    array([0.5     , 0.333333, 0.166667, 0.      ])
    """
    lags = np.asarray(lags, dtype=float)
    noise = np.broadcast_to(np.asarray(noise_variance, dtype=float), lags.shape)
    check_positive("lipschitz", lipschitz, allow_zero=True)
    if lags.ndim == 0 or lags.shape[-1] == 0 or not (lags >= 0).all():
        raise ValueError("lags must be one or more numbers from 0 on along the last axis.")
    if not (noise > 0).all():
        raise ValueError(f"noise_variance must be positive, got {noise.min()}.")
    order = np.argsort(lags, axis=-1)
    lag, precision = np.take_along_axis(lags, order, -1), 1 / np.take_along_axis(noise, order, -1)
    first = np.cumsum(lag * precision, axis=-1)
    second = np.cumsum(lag**2 * precision, axis=-1)
    target = math.inf if lipschitz == 0 else lipschitz**-2
    reached = np.divide(target + second, first, out=np.full_like(first, math.inf), where=first > 0)
    tau = reached.min(axis=-1, keepdims=True)
    flat = np.isinf(tau)
    shape = np.where(flat, 1.0, np.clip(np.where(flat, 1.0, tau) - lags, 0.0, None)) / noise
    return shape / shape.sum(axis=-1, keepdims=True)


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
    """
    m = np.asarray(bandwidth, dtype=float)
    return LinearError(bias=lipschitz * (m - 1) / 3, variance=noise_variance * 2 * (2 * m + 1) / (3 * m * (m + 1)))


def optimal_integer_bandwidth(*, lipschitz: float, noise_variance: float) -> int:
    """The m that minimises the worst-case MSE of `integer_bandwidth_error`.

    Parameters
    ----------
    lipschitz : float
        L per step, positive.
    noise_variance : float
        Variance of one observation.
    """
    check_positive("lipschitz", lipschitz)
    check_positive("noise_variance", noise_variance)
    # The asymptotic optimum is (6 s2 / L^2)^(1/3); the MSE is convex in m and the exact one lies within 2 of it.
    near = (6 * noise_variance / lipschitz**2) ** (1 / 3)
    candidates = np.arange(max(1, math.floor(near) - 3), math.ceil(near) + 4)
    mse = integer_bandwidth_error(candidates, lipschitz=lipschitz, noise_variance=noise_variance).mse
    return int(candidates[np.argmin(mse)])


def local_rate_slopes(sizes: Sequence[int], *, lipschitz: float = 1.0, noise_variance: float = 0.25) -> np.ndarray:
    """Log-log slopes of the best worst-case MSE between successive sample sizes.

    n observations at lags k / n of a path with Lipschitz constant L on [0, 1], each n with its best integer
    bandwidth. The slopes tend to -2/3, Stone's rate (paper, Corollary 1).

    Parameters
    ----------
    sizes : sequence of int, length S
        Increasing sample sizes n.
    lipschitz, noise_variance : float

    Returns
    -------
    ndarray, shape (S - 1,)

    Examples
    --------
    >>> local_rate_slopes([10**3, 10**4, 10**5]).round(5)
    array([-0.6637 , -0.66603])
    """
    best = [
        float(
            integer_bandwidth_error(
                optimal_integer_bandwidth(lipschitz=lipschitz / n, noise_variance=noise_variance),
                lipschitz=lipschitz / n,
                noise_variance=noise_variance,
            ).mse
        )
        for n in sizes
    ]
    return np.diff(np.log(best)) / np.diff(np.log(np.asarray(sizes, dtype=float)))


def optimal_bandwidth(
    kernel: str | Kernel | Callable, *, lipschitz: float, noise_variance: float, per_step: float = 1.0
) -> float:
    """Bandwidth (steps) that minimises the asymptotic worst-case MSE of the kernel mean.

    ``h* = (R s2 / (2 mu1^2 L^2 n))^(1/3)``; there the squared bias is half the variance, and the MSE is
    `optimal_mse`.

    Parameters
    ----------
    kernel : str, Kernel or callable
    lipschitz : float
        L per step.
    noise_variance : float
        s2, the variance of one reward.
    per_step : float
        n, completions per step: the group size times the share of steps at which the prompt is visited.
    """
    noise, drift = _per_step_noise(noise_variance, per_step), check_positive("lipschitz", lipschitz)
    return as_kernel(kernel).lipschitz_bandwidth_constant * (noise / drift**2) ** (1 / 3)


def optimal_mse(
    kernel: str | Kernel | Callable, *, lipschitz: float, noise_variance: float, per_step: float = 1.0
) -> float:
    """Asymptotic worst-case MSE at `optimal_bandwidth`: ``constant * (L s2 / n)^(2/3)``; arguments as there."""
    noise, drift = _per_step_noise(noise_variance, per_step), check_positive("lipschitz", lipschitz)
    return as_kernel(kernel).worst_case_mse_constant * (drift * noise) ** (2 / 3)


def steady_state_gain(*, drift_variance: float, noise_variance: float) -> float:
    """Gain K to which the local-level Kalman filter settles: ``K^2 / (1 - K) = drift_variance / noise_variance``.

    The filter then is the exponential kernel ``K (1 - K)^(lag - 1)`` on the visits: ``rho = 1 - K`` per visit.

    Parameters
    ----------
    drift_variance : float
        Variance of the value's change between visits.
    noise_variance : float
        Variance of a visit's mean reward: ``s2 / n`` for n completions.

    Examples
    --------
    >>> steady_state_gain(drift_variance=0.5, noise_variance=1.0)
    0.5
    """
    signal = check_positive("drift_variance", drift_variance) / check_positive("noise_variance", noise_variance)
    # The root in (0, 1) of K^2 + r K - r = 0, in the form that loses no digits for small r.
    return 2 * signal / (signal + math.sqrt(signal**2 + 4 * signal))


def _per_step_noise(noise_variance: float, per_step: float) -> float:
    return check_positive("noise_variance", noise_variance) / check_positive("per_step", per_step)
