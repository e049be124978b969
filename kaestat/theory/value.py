"""Theorem 1: exact bias and variance of Algorithm 1's value estimate, and the theorem's bounds with their constants.

The theorem conditions on how often a prompt was visited, not on when: under Assumption 1 the n visits before step i
stand at n of the steps 0..i-1, every choice of them equally likely.
"""

from collections.abc import Callable

import numpy as np

from kaestat.core.arrays import Array, check_shapes
from kaestat.core.checks import check_numbers, check_positive, check_whole
from kaestat.smoothing.kernels import Kernel, as_kernel
from kaestat.theory.linear import LinearError


def algorithm1_error(
    path: np.ndarray,
    *,
    visits: int,
    group_size: int,
    h: float,
    kernel: str | Kernel | Callable[[Array], Array] = "triangular",
    noise_variance: np.ndarray | None = None,
) -> LinearError:
    """Exact error of the paper's Algorithm 1 at step i, over the times of the visits and the rewards.

    The estimate is ``T / M`` with the algorithm's own denominator ``M = h G n + K(0) (G - 1)``
    (``normalization="algorithm1"`` of `kaestat.baselines.Kae`), and, with ``a_t = K((i - t) / (i h))`` and the visited
    steps t drawn without replacement::

        E T   = (n / i) G sum_t a_t V_t + K(0) (G - 1) V_i
        Var T = (n / i) G sum_t a_t^2 s_t + G^2 n (1 - n / i) S^2 + K(0)^2 (G - 1) s_i

    where ``S^2`` is the variance (divisor i - 1) of ``a_t V_t`` over the steps. The middle term is not noise of
    rewards: the weights of a random set of visits do not sum to M. It is of order ``1 / (n h)`` for any G.

    Parameters
    ----------
    path : ndarray, shape (..., i + 1)
        V_0..V_i; the last is the value to estimate.
    visits : int
        n, 0 to i.
    group_size : int
        G.
    h : float
        Bandwidth as a fraction of the elapsed steps.
    kernel : str, Kernel or callable
    noise_variance : ndarray, shape (..., i + 1), optional
        Variance of a reward at each step; None means ``V (1 - V)``, rewards 0 and 1.

    Returns
    -------
    LinearError
        Arrays of shape (...).

    Raises
    ------
    ValueError
        If a size is out of range, or nothing is observed (no visits and G = 1).
    TypeError
        If something is not a number.

    Examples
    --------
    >>> error = algorithm1_error(np.full(101, 0.5), visits=100, group_size=1, h=0.1)
    >>> round(float(error.bias), 6)  # every step is visited, and the weights sum to 0.9, not to 1
    -0.05
    """
    kernel = as_kernel(kernel)
    path, h = check_numbers("path", path, ndim=1), check_positive("h", h)
    visits, group_size = check_whole("visits", visits, least=0), check_whole("group_size", group_size)
    steps = path.shape[-1] - 1
    if steps < 2 or visits > steps or visits + group_size < 2:
        raise ValueError(
            f"need a path of 3 values or more, 0 to i visits and a completion to learn from; got i={steps}, "
            f"visits={visits}, group_size={group_size}."
        )
    given = path * (1 - path) if noise_variance is None else check_numbers("noise_variance", noise_variance, least=0)
    check_shapes(path=path, noise_variance=given)
    shape = np.broadcast_shapes(path.shape, given.shape)
    path, noise = np.broadcast_to(path, shape), np.broadcast_to(given, shape)
    weight = kernel(np.arange(steps, 0, -1) / (steps * h))
    others, share = group_size - 1, visits / steps
    mass = h * group_size * visits + kernel.at_zero * others
    past = share * group_size * np.sum(weight * path[..., :-1], axis=-1)
    carried = weight * path[..., :-1]
    variance = (
        share * group_size * np.sum(weight**2 * noise[..., :-1], axis=-1)
        + group_size**2 * visits * (1 - share) * np.var(carried, axis=-1, ddof=1)
        + kernel.at_zero**2 * others * noise[..., -1]
    )
    target = path[..., -1]
    return LinearError(bias=(past + kernel.at_zero * others * target) / mass - target, variance=variance / mass**2)


def theorem1_bound(
    *,
    step: int,
    visits: int,
    group_size: int,
    h: float,
    drift: float,
    value_bound: float = 1.0,
    noise_variance: float = 0.25,
    kernel: str | Kernel | Callable[[Array], Array] = "triangular",
) -> LinearError:
    """Theorem 1's bounds on ``|bias|`` and variance with explicit constants, for `algorithm1_error`.

    With ``b = i h`` and a kernel that is non-increasing on its support [0, 1], right Riemann sums of K and K^2 lie
    below their integrals, by at most ``K(0) / b`` for K, and ``sum_t K(t / b) t / b^2 <= mu1 + 1 / b``. A value that
    drifts by at most ``c log(t2 / t1)`` from step t1 to t2 (the paper's consequence of ``eta_i = beta / i``) was within
    ``c u / (1 - h)`` of the current one u i steps ago. Hence, with ``M >= h G n``, and ``M >= h N`` as ``K(0) >= 1``::

        |bias|   <= c h (mu1 + 1 / (i h)) / (1 - h)  +  v K(0) / (i h)
        variance <= max(R (s2 + G v^2), K(0) s2) / (N h)            N = G n + G - 1

    The G in the variance is missing from the paper's proof, which treats the completions of a visit as if each had its
    own time; for the fixed G of Corollary 1 the rate is the same.

    Parameters
    ----------
    step : int
        i.
    visits : int
        n, past visits of the prompt.
    group_size : int
        G.
    h : float
        Bandwidth as a fraction of the elapsed steps, below 1.
    drift : float
        c.
    value_bound : float
        v, the largest absolute value.
    noise_variance : float
        s2, the largest variance of a reward.
    kernel : str, Kernel or callable
        Non-increasing, of support [0, 1] (Assumption 3).

    Raises
    ------
    ValueError
        If h is not in (0, 1), the kernel's support is not bounded by 1, or a size is out of range.
    TypeError
        If something is not a number.
    """
    kernel, h = as_kernel(kernel), check_positive("h", h)
    if h >= 1:
        raise ValueError(f"h must lie in (0, 1), got {h!r}: Theorem 1 holds for bandwidths below the elapsed time.")
    if kernel.support > 1:
        raise ValueError(f"kernel {kernel.name!r} has support {kernel.support:g}; Theorem 1 requires [0, 1].")
    step, visits = check_whole("step", step), check_whole("visits", visits, least=0)
    group_size = check_whole("group_size", group_size)
    if visits > step or visits + group_size < 2:
        raise ValueError(f"need step >= 1 and 0 to step visits, got {step}, {visits}, group_size={group_size}.")
    width, size = step * h, group_size * visits + group_size - 1
    drift = check_positive("drift", drift, allow_zero=True)
    value_bound = check_positive("value_bound", value_bound, allow_zero=True)
    noise_variance = check_positive("noise_variance", noise_variance, allow_zero=True)
    spread = kernel.roughness * (noise_variance + group_size * value_bound**2)
    return LinearError(
        bias=drift * h * (kernel.mu1 + 1 / width) / (1 - h) + value_bound * kernel.at_zero / width,
        variance=max(spread, kernel.at_zero * noise_variance) / (size * h),
    )
