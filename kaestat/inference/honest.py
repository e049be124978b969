"""The bias-aware fixed-length interval over a Lipschitz class (Armstrong and Kolesar, 2018, 2020)."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, device

from kaestat.core.arrays import Array, ratio
from kaestat.core.checks import check_factors, check_number, check_shapes


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
    critical = xp.asarray(_critical_value(relative, level, np.asarray(freedom)), dtype=se.dtype, device=device(se))
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
        Degrees of freedom of the standard error, 1/4 or more; infinite where it is known, and NaN gives NaN.

    Returns
    -------
    ndarray, the shape of ``relative_bias`` and ``freedom``

    Raises
    ------
    ValueError
        If ``relative_bias`` is negative, ``level`` outside [0.5, 1) or ``freedom`` below 1/4, or shapes do not fit.
    TypeError
        If something is not a number.

    Examples
    --------
    >>> honest_critical_value([0.0, 0.5, 3.0]).round(4)
    array([1.96  , 2.1815, 4.6449])
    """
    bias = check_factors("relative_bias", relative_bias, least=0)
    freedom = check_factors("freedom", freedom, least=0.25, finite=False)
    check_shapes(relative_bias=bias, freedom=freedom)
    return _critical_value(bias, confidence_level(level), freedom)


def confidence_level(level: float) -> float:
    """The level as a float, or an error that says what it must be."""
    number = check_number("level", level)
    if not 0.5 <= number < 1:
        raise ValueError(f"level must lie in [0.5, 1), got {level!r}; write 0.95 for 95 %.")
    return number


def _critical_value(bias: np.ndarray, level: float, freedom: np.ndarray) -> np.ndarray:
    from scipy.special import beta, ndtr, ndtri, stdtr, stdtrit

    normal = np.isinf(freedom)
    student = np.where(normal, 1.0, freedom)
    height = 1 / (np.sqrt(student) * beta(0.5, student / 2))

    def below(t: np.ndarray) -> np.ndarray:
        return np.where(normal, ndtr(t), stdtr(student, t))

    def density(t: np.ndarray) -> np.ndarray:
        bell = np.exp(-0.5 * t * t) / np.sqrt(2 * np.pi)
        return np.where(normal, bell, height * np.exp(-(student + 1) / 2 * np.log1p(t * t / student)))

    # P(|T + b| <= b + t) is increasing and concave in t for t >= 0, and at the one-sided quantile below `level`:
    # Newton's steps from there rise to the root without passing it, and settle within ten.
    t = np.where(normal, ndtri(level), stdtrit(student, level)) + np.zeros_like(bias)
    for _ in range(10):
        missing = level - (below(t) - below(-t - 2 * bias))
        t = t + missing / (density(t) + density(t + 2 * bias))
    return bias + t


def _plain(values: Array) -> np.ndarray:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
