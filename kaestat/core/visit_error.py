"""The unbiased squared error of the values of a visit, from its rewards alone."""

import numpy as np


def unbiased_error(
    loss: np.ndarray, own_derivative: np.ndarray | float, variance: np.ndarray, *, absolute: bool = True
) -> np.ndarray:
    """``mean_g (Z_g - V_g)^2 - (1 - 2 mean_g c_g) S^2`` of each visit, shape (W,).

    A leave-one-out value is independent of its own reward given the past, so ``E (Z_g - V_g)^2 = Var(Z) + MSE(V_g)``; a
    value that contains its own reward has the covariance ``c_g Var(Z)`` with it, which is added back twice. The result
    can be negative: it is unbiased, not a square.

    ``loss`` is the mean of ``(Z_g - V_g)^2`` over the visit's completions, ``own_derivative`` the mean of the ``c_g``,
    the derivatives of values in their own rewards, and ``variance`` the sample variance S^2 (ddof 1; NaN where it is
    not known). If not ``absolute``, the result is the error plus the reward variance, which is the same for all
    baselines, and known for leave-one-out baselines even where the variance is not.
    """
    if absolute:
        return loss - (1 - 2 * own_derivative) * variance
    return loss + np.where(own_derivative != 0, 2 * own_derivative * variance, 0.0)
