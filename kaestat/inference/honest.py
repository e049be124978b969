"""The bias-aware fixed-length interval over a Lipschitz class (Armstrong and Kolesar, 2018, 2020)."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, device

from kaestat.arrays import Array, ratio


def honest_half_width(bias: Array, se: Array, level: float) -> Array:
    """``se * honest_critical_value(bias / se, level)``, and ``bias`` where there is no noise.

    Parameters
    ----------
    bias : array, shape (...)
        Worst-case bias of the estimate, 0 or more.
    se : array, shape (...)
        Its standard error.
    level : float
        Confidence level, in [0.5, 1).
    """
    xp = array_namespace(bias, se)
    relative = ratio(bias, se, 0.0, xp)
    plain = relative if isinstance(relative, np.ndarray | np.floating) else relative.detach().cpu().numpy()
    critical = xp.asarray(honest_critical_value(plain, level), dtype=se.dtype, device=device(se))
    return xp.where(se == 0, bias, se * critical)


def honest_critical_value(relative_bias: np.ndarray | float, level: float = 0.95) -> np.ndarray:
    """The ``level`` quantile of ``|N(relative_bias, 1)|``.

    An interval of this many standard errors covers at ``level`` whatever the bias, if that is at most
    ``relative_bias`` standard errors.

    Parameters
    ----------
    relative_bias : array_like
        Worst-case bias in standard errors, 0 or more.
    level : float
        In [0.5, 1).

    Returns
    -------
    ndarray, the shape of ``relative_bias``

    Raises
    ------
    ValueError
        If ``relative_bias`` is negative or ``level`` outside [0.5, 1).

    Examples
    --------
    >>> honest_critical_value([0.0, 0.5, 3.0]).round(4)
    array([1.96  , 2.1815, 4.6449])
    """
    from scipy.special import ndtr, ndtri

    if not 0.5 <= level < 1:
        raise ValueError(f"level must lie in [0.5, 1), got {level!r}.")
    bias = np.asarray(relative_bias, dtype=float)
    if (bias < 0).any():
        raise ValueError(f"relative_bias must be 0 or more, got {bias.min()}.")
    # P(|N(t, 1)| <= c) is increasing and concave in c beyond t, and at the one-sided quantile below `level`:
    # Newton's steps from there rise to the root without passing it, and settle within ten.
    critical = bias + ndtri(level)
    for _ in range(10):
        missing = level - (ndtr(critical - bias) - ndtr(-critical - bias))
        density = np.exp(-0.5 * (critical - bias) ** 2) + np.exp(-0.5 * (critical + bias) ** 2)
        critical = critical + missing * np.sqrt(2 * np.pi) / density
    return critical
