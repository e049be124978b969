"""Exact bias, variance and MSE of any linear smoother, and the smoother with the least worst-case MSE.

A linear smoother estimates the current value V(0) by ``sum_k w_k Y_k`` with ``sum_k w_k = 1``, from independent
observations Y_k of ``V(lag_k)`` with variance s_k. Over the Lipschitz class ``|V(s) - V(t)| <= L |s - t|`` its worst
bias and MSE are exact numbers too, so rates are slopes of functions, not of simulations.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from kaestat.core.arrays import Array, check_shapes
from kaestat.core.checks import SMALLEST, check_numbers, check_positive


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
        The value to estimate.

    Raises
    ------
    ValueError, TypeError
        If an argument is not a number, a variance is negative, or shapes do not match.

    Examples
    --------
    >>> error = linear_error(np.array([0.75, 0.25]), np.array([0.5, 0.1]), 0.2, target=0.5)
    >>> round(float(error.bias), 6), round(float(error.variance), 6), round(float(error.mse), 6)
    (-0.1, 0.125, 0.135)
    """
    weights, path = numbers_like("weights", weights, ndim=1), numbers_like("path", path, ndim=1)
    target, variance = numbers_like("target", target), _variance(weights, noise_variance)
    check_shapes(weights=weights, path=path)
    bias = array_namespace(weights).sum(weights * path, axis=-1)
    check_shapes(weights=bias, target=target)
    return LinearError(bias=bias - target, variance=variance)


def worst_case_error(
    weights: Array, lags: Array, noise_variance: float | Array, lipschitz: float | Array
) -> LinearError:
    """Worst-case error over the Lipschitz class, for weights that sum to 1.

    The bias is the largest ``|sum_k w_k V(lag_k) - V(0)|``. For non-negative weights it is ``L sum_k w_k lag_k``,
    attained by a value that drifts at full speed in one direction. In general the worst value turns where the sum of
    the weights beyond a lag changes sign::

        L sum_j (lag_(j) - lag_(j-1)) |sum_{k: lag_k >= lag_(j)} w_k|       lags sorted, lag_(0) = 0

    Parameters
    ----------
    weights, lags : array, shape (..., K)
        Lags are 0 or more, in any order.
    noise_variance : float or array, shape (..., K)
        Variance of each observation.
    lipschitz : float or array, shape (...)
        L, per unit of the lags.

    Raises
    ------
    ValueError, TypeError
        If an argument is not a number, one that must not be negative is, or shapes do not match.
    """
    weights, lags = numbers_like("weights", weights, ndim=1), numbers_like("lags", lags, least=0, ndim=1)
    lipschitz = numbers_like("lipschitz", lipschitz, least=0)
    check_shapes(weights=weights, lags=lags)
    check_shapes(lags=weights[..., 0] + lags[..., 0], lipschitz=lipschitz)
    return LinearError(bias=largest_bias(weights, lags, lipschitz), variance=_variance(weights, noise_variance))


def largest_bias(weights: Array, lags: Array, lipschitz: float | Array) -> Array:
    """The bias of `worst_case_error` of checked arrays; NaN where weights are NaN."""
    xp = array_namespace(weights)
    shape = np.broadcast_shapes(weights.shape, lags.shape)
    weights, lags = xp.broadcast_to(weights, shape), xp.broadcast_to(lags, shape)
    order = xp.argsort(lags, axis=-1)
    sorted_lags, sorted_weights = (xp.take_along_axis(a, order, axis=-1) for a in (lags, weights))
    gaps = sorted_lags - xp.concat([xp.zeros_like(sorted_lags[..., :1]), sorted_lags[..., :-1]], axis=-1)
    beyond = xp.flip(xp.cumulative_sum(xp.flip(sorted_weights, axis=-1), axis=-1), axis=-1)
    return lipschitz * xp.sum(gaps * xp.abs(beyond), axis=-1)


def numbers_like(name: str, values: Any, **limits: Any) -> Any:
    """Checked numbers; a tensor stays a tensor, and a single number becomes a float, which works with both."""
    checked = check_numbers(name, values, **limits)
    return values if is_torch_array(values) else checked if checked.ndim else float(checked)


def _variance(weights: Array, noise_variance: float | Array) -> Array:
    noise = numbers_like("noise_variance", noise_variance, least=0)
    check_shapes(weights=weights, noise_variance=noise)
    return array_namespace(weights).sum(weights**2 * noise, axis=-1)


def minimax_weights(lags: np.ndarray, noise_variance: float | np.ndarray, lipschitz: float) -> np.ndarray:
    """The linear smoother with the least worst-case MSE over the Lipschitz class, exactly.

    It minimises ``(L sum w_k lag_k)^2 + sum s_k w_k^2`` subject to ``sum w_k = 1``. The Karush-Kuhn-Tucker conditions
    give ``w_k`` proportional to ``(tau - lag_k)_+ / s_k``, a triangular kernel of bandwidth tau, where tau solves
    ``sum_k (tau - lag_k)_+ lag_k / s_k = 1 / L^2``. The left side is the largest of the lines ``tau A_j - B_j`` with
    ``A_j``, ``B_j`` the sums of ``lag / s`` and ``lag^2 / s`` over the j smallest lags, hence
    ``tau = min_j (1 / L^2 + B_j) / A_j``. The code computes tau minus the smallest lag, with ``lag - smallest`` for
    one of the factors of B: differences of lags lose no digits, even if all visits are old.

    Parameters
    ----------
    lags : ndarray, shape (..., K)
        0 or more, in any order.
    noise_variance : float or ndarray, shape (..., K)
        Variance of each observation, positive; for a visit of n completions, the variance of their mean.
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
    TypeError
        If an argument is not a number.

    Examples
    --------
    >>> minimax_weights(np.arange(4.0), 0.25, 0.25).round(6)
    array([0.5     , 0.333333, 0.166667, 0.      ])
    """
    lags = check_numbers("lags", lags, least=0, ndim=1)
    noise = check_numbers("noise_variance", noise_variance, least=SMALLEST)
    check_shapes(lags=lags, noise_variance=noise)
    shape = np.broadcast_shapes(lags.shape, noise.shape)
    lags, noise = np.broadcast_to(lags, shape), np.broadcast_to(noise, shape)
    lipschitz = check_positive("lipschitz", lipschitz, allow_zero=True)
    order = np.argsort(lags, axis=-1)
    lag, precision = np.take_along_axis(lags, order, -1), 1 / np.take_along_axis(noise, order, -1)
    later = lags - lag[..., :1]  # than the most recent
    first = np.cumsum(lag * precision, axis=-1)
    second = np.cumsum((lag - lag[..., :1]) * lag * precision, axis=-1)
    target = math.inf if lipschitz == 0 else 1 / lipschitz / lipschitz  # inf, too, if that is beyond floats
    with np.errstate(over="ignore"):  # beyond the range of floats the drift is negligible
        reached = np.divide(target + second, first, out=np.full_like(first, math.inf), where=first > 0)
    excess = reached.min(axis=-1, keepdims=True)
    flat = np.isinf(excess)
    excess = np.where(flat, 1.0, excess)
    shape = np.where(flat, 1.0, np.clip(1 - later / excess, 0.0, None)) / noise
    return shape / shape.sum(axis=-1, keepdims=True)
