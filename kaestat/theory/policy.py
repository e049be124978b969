"""Theorem 3: from the gradient's MSE to the suboptimality of the learned policy.

For an objective J whose gradient has Lipschitz constant L and satisfies the PL condition
``||grad J||^2 >= 2 mu Delta``, and unbiased gradient estimates of mean squared error C_k, ascent with learning rates
``eta_k`` obeys (paper, proof of Theorem 3)::

    E Delta_k <= (1 - 2 mu eta_k + mu L eta_k^2) E Delta_(k-1) + (L / 2) eta_k^2 C_k

The step uses the PL condition with the factor ``-(eta - L eta^2 / 2)``, so it needs ``eta <= 2 / L``; the paper's
``beta / k`` may exceed that at first. There ``||grad J||^2 <= 2 L Delta`` gives the factor ``(1 - L eta)^2`` instead.
"""

import math
from dataclasses import dataclass

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
    pl, smoothness = _constants(pl, smoothness)
    noise = check_numbers("gradient_mse", gradient_mse, least=0, ndim=1)
    rate = check_numbers("learning_rate", learning_rate, least=SMALLEST, ndim=1)
    if rate.ndim != 1 or noise.shape[-1] != len(rate):
        raise ValueError("gradient_mse and learning_rate must have one number for each step.")
    first = check_numbers("initial_gap", initial_gap)
    check_shapes(initial_gap=first, gradient_mse=noise[..., 0])
    factor = recursion_factor(rate, pl, smoothness)
    gap = np.broadcast_to(first, np.broadcast_shapes(first.shape, noise.shape[:-1]))
    path = [gap]
    for k in range(len(rate)):
        gap = factor[k] * gap + smoothness / 2 * rate[k] ** 2 * noise[..., k]
        path.append(gap)
    return np.stack(path, axis=-1)


@dataclass(frozen=True)
class PolicyBound:
    """Theorem 3's constants, for the learning rates ``beta / k`` and ``A = 2 mu beta = 1 + epsilon``.

    Attributes
    ----------
    c1, c2, c3 : float
    exponent : float
        A.
    """

    c1: float
    c2: float
    c3: float
    exponent: float

    def gap(self, n: int, n0: int, later_mse: float) -> float:
        """``c1 n^-A + c2 n0 (n0 / n)^A + (c3 / n) sup_{k >= n0} C_k``.

        Parameters
        ----------
        n, n0 : int
            Number of steps, and the step after which the gradient's MSE is at most ``later_mse``; 1 <= n0 <= n.
        later_mse : float

        Raises
        ------
        ValueError
            Unless 1 <= n0 <= n.
        """
        if not 1 <= n0 <= n:
            raise ValueError(f"need 1 <= n0 <= n, got n0={n0}, n={n}.")
        return self.c1 / n**self.exponent + self.c2 * n0 * (n0 / n) ** self.exponent + self.c3 / n * later_mse


def theorem3_bound(*, initial_gap: float, largest_mse: float, beta: float, pl: float, smoothness: float) -> PolicyBound:
    """Theorem 3's constants from the appendix's proof.

    ::

        c1 = K Delta_0      c2 = L K beta^2 M / 2      c3 = 2 * 3^(A-1) L K beta^2 / (A - 1)
        K  = exp(B pi^2 / 6) max(F, 1)^k0 (k0 + 1)^A         A = 2 mu beta,  B = mu L beta^2

    where F is the largest factor of the recursion over the first ``k0 = max(ceil(A), ceil(L beta / 2))`` steps,
    including those with rates above 2 / L. K bounds the products: ``prod_(k=n0..n) factor_k <= K (n0 / n)^A`` (the
    paper's last lemma, with the sum of ``1 / k^2`` for its 3). The 2 in c3 is missing from the paper, whose
    ``(k+1)^A / (2 k^2) <= (k+1)^(A-2)`` fails at k = 1 and 2.

    The constants only prove the rate: K grows at least as ``exp(1.6 mu L beta^2)``, so for all but very small
    rates the bound exceeds the range of the rewards, or is inf. For numbers use `suboptimality_recursion`.

    Parameters
    ----------
    initial_gap : float
        Delta_0.
    largest_mse : float
        M, the largest gradient MSE of any step.
    beta : float
        Learning rates are ``beta / k``, k = 1, 2, ...
    pl, smoothness : float
        mu and L, with ``2 mu beta > 1`` and ``mu <= L``.

    Raises
    ------
    ValueError
        If ``2 mu beta <= 1`` (Assumption 7) or a number is out of range.
    TypeError
        If something is not a number.
    """
    pl, smoothness = _constants(pl, smoothness)
    beta = check_positive("beta", beta)
    initial_gap = check_positive("initial_gap", initial_gap, allow_zero=True)
    largest_mse = check_positive("largest_mse", largest_mse, allow_zero=True)
    exponent, curvature = 2 * pl * beta, pl * smoothness * beta**2
    if exponent <= 1:
        raise ValueError(f"Theorem 3 needs beta > 1 / (2 mu) = {1 / (2 * pl):g}, got beta={beta:g}.")
    first = max(math.ceil(exponent), math.ceil(smoothness * beta / 2))
    # The factor exceeds 1 only at rates above 2 / L, where it grows with the rate; so the first is the largest.
    largest = max(float(recursion_factor(np.asarray(beta), pl, smoothness)), 1.0)
    log_k = curvature * math.pi**2 / 6 + first * math.log(largest) + exponent * math.log(first + 1)
    with np.errstate(over="ignore"):
        scale, power = float(np.exp(log_k)), float(np.exp((exponent - 1) * math.log(3)))
    step = smoothness * scale * beta**2
    return PolicyBound(
        c1=scale * initial_gap if initial_gap else 0.0,  # and no product of 0 and inf
        c2=step * largest_mse / 2 if largest_mse else 0.0,
        c3=2 * power * step / (exponent - 1),
        exponent=exponent,
    )


def recursion_factor(learning_rate: np.ndarray, pl: float, smoothness: float) -> np.ndarray:
    """Factor of the previous gap in the recursion, for each learning rate; 0 or more."""
    leap = learning_rate * smoothness > 2
    careful = 1 - 2 * pl * learning_rate + pl * smoothness * learning_rate**2
    return np.where(leap, (1 - smoothness * learning_rate) ** 2, careful)


def _constants(pl: float, smoothness: float) -> tuple[float, float]:
    pl, smoothness = check_positive("pl", pl), check_positive("smoothness", smoothness)
    if pl > smoothness:
        raise ValueError(f"pl must be at most smoothness, got {pl!r} > {smoothness!r}: no function has such constants.")
    return pl, smoothness
