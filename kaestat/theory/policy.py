"""Theorem 3: from the gradient's MSE to the suboptimality of the learned policy.

For an objective J whose gradient has Lipschitz constant L and satisfies the PL condition
``||grad J||^2 >= 2 mu Delta``, and unbiased gradient estimates of mean squared error C_k, ascent with learning rates
``eta_k`` obeys (paper, proof of Theorem 3)::

    E Delta_k <= (1 - 2 mu eta_k + mu L eta_k^2) E Delta_(k-1) + (L / 2) eta_k^2 C_k

The step uses the PL condition with the factor ``-(eta - L eta^2 / 2)``, so it needs ``eta <= 2 / L``; the paper's
``beta / k`` may exceed that at first. There ``||grad J||^2 <= 2 L Delta`` gives the factor ``(1 - L eta)^2`` instead.
"""

import numpy as np

from kaestat.core.arrays import check_shapes
from kaestat.core.checks import SMALLEST, check_numbers, check_positive


def suboptimality_recursion(
    initial_gap: np.ndarray | float,
    gradient_mse: np.ndarray,
    learning_rate: np.ndarray,
    *,
    pl: float,
    smoothness: float,
) -> np.ndarray:
    """A bound on the expected gap after each step, by recursion; a quadratic with mu = L attains it.

    Parameters
    ----------
    initial_gap : float or array, shape (...)
        Delta of the first policy.
    gradient_mse : array, shape (..., n)
        C_k of each step.
    learning_rate : array, shape (n,)
        eta_k.
    pl : float
        mu.
    smoothness : float
        L, at least mu.

    Returns
    -------
    ndarray, shape (..., n + 1)
        The initial gap and the bounds after steps 1..n.

    Raises
    ------
    ValueError
        If ``pl`` exceeds ``smoothness``, which is impossible, a number is not positive, or shapes do not match.
    TypeError
        If something is not a number.

    Examples
    --------
    >>> suboptimality_recursion(1.0, [0.1, 0.1], [0.5, 0.25], pl=1.0, smoothness=1.0).round(6)
    array([1.      , 0.2625  , 0.150781])
    """
    pl, smoothness = check_positive("pl", pl), check_positive("smoothness", smoothness)
    if pl > smoothness:
        raise ValueError(f"pl must be at most smoothness, got {pl!r} > {smoothness!r}: no function has such constants.")
    noise = check_numbers("gradient_mse", gradient_mse, least=0, ndim=1)
    rate = check_numbers("learning_rate", learning_rate, least=SMALLEST, ndim=1)
    if rate.ndim != 1 or noise.shape[-1] != len(rate):
        raise ValueError("gradient_mse and learning_rate must have one number for each step.")
    first = check_numbers("initial_gap", initial_gap)
    check_shapes(initial_gap=first, gradient_mse=noise[..., 0])
    careful = 1 - 2 * pl * rate + pl * smoothness * rate**2
    factor = np.where(rate * smoothness > 2, (1 - smoothness * rate) ** 2, careful)
    gap = np.broadcast_to(first, np.broadcast_shapes(first.shape, noise.shape[:-1]))
    path = [gap]
    for k in range(len(rate)):
        gap = factor[k] * gap + smoothness / 2 * rate[k] ** 2 * noise[..., k]
        path.append(gap)
    return np.stack(path, axis=-1)
