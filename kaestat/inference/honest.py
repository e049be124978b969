"""The bias-aware fixed-length interval over a Lipschitz class (Armstrong and Kolesar, 2018, 2020)."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, device

from kaestat.arrays import Array, ratio


def honest_half_width(bias: Array, se: Array, level: float, freedom: Array | None = None) -> Array:
    """``se * honest_critical_value(bias / se, level, freedom)``, and ``bias`` where there is no noise.

    Parameters
    ----------
    bias : array, shape (...)
        Worst-case bias of the estimate, 0 or more.
    se : array, shape (...)
        Its standard error.
    level : float
        Confidence level, in [0.5, 1).
    freedom : array, shape (...), optional
        Degrees of freedom of the standard error; None if it is known.
    """
    xp = array_namespace(bias, se)
    relative = _plain(ratio(bias, se, 0.0, xp))
    freedom = np.inf if freedom is None else _plain(freedom)
    critical = xp.asarray(honest_critical_value(relative, level, freedom), dtype=se.dtype, device=device(se))
    return xp.where(se == 0, bias, se * critical)


def honest_critical_value(
    relative_bias: np.ndarray | float, level: float = 0.95, freedom: np.ndarray | float = np.inf
) -> np.ndarray:
    """The ``level`` quantile of ``|T + relative_bias|``, T normal, or Student's where the standard error is estimated.

    An interval of this many standard errors covers at ``level`` whatever the bias, if that is at most
    ``relative_bias`` standard errors. With an estimated standard error this is exact for normal rewards without bias,
    and with so much bias that one end alone matters.

    Parameters
    ----------
    relative_bias : array_like
        Worst-case bias in standard errors, 0 or more.
    level : float
        In [0.5, 1).
    freedom : array_like
        Degrees of freedom of the standard error, positive; NaN gives NaN.

    Returns
    -------
    ndarray, the shape of ``relative_bias`` and ``freedom``

    Raises
    ------
    ValueError
        If ``relative_bias`` is negative or ``level`` outside [0.5, 1).

    Examples
    --------
    >>> honest_critical_value([0.0, 0.5, 3.0]).round(4)
    array([1.96  , 2.1815, 4.6449])
    """
    from scipy.special import gammaln, ndtr, ndtri, stdtr, stdtrit

    if not 0.5 <= level < 1:
        raise ValueError(f"level must lie in [0.5, 1), got {level!r}.")
    bias = np.asarray(relative_bias, dtype=float)
    if (bias < 0).any():
        raise ValueError(f"relative_bias must be 0 or more, got {bias.min()}.")
    freedom = np.asarray(freedom, dtype=float)
    normal = np.isinf(freedom)
    student = np.where(normal, 1.0, freedom)
    height = np.exp(gammaln((student + 1) / 2) - gammaln(student / 2)) / np.sqrt(student * np.pi)

    def below(t: np.ndarray) -> np.ndarray:
        return np.where(normal, ndtr(t), stdtr(student, t))

    def density(t: np.ndarray) -> np.ndarray:
        bell = np.exp(-0.5 * t * t) / np.sqrt(2 * np.pi)
        return np.where(normal, bell, height * (1 + t * t / student) ** (-(student + 1) / 2))

    # P(|T + b| <= c) is increasing and concave in c beyond b, and at the one-sided quantile below `level`:
    # Newton's steps from there rise to the root without passing it, and settle within ten.
    critical = bias + np.where(normal, ndtri(level), stdtrit(student, level))
    for _ in range(10):
        missing = level - (below(critical - bias) - below(-critical - bias))
        critical = critical + missing / (density(critical - bias) + density(critical + bias))
    return critical


def _plain(values: Array) -> np.ndarray:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
