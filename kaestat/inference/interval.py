"""Confidence intervals for the value of each prompt at one step."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from array_api_compat import array_namespace

from kaestat.core.arrays import Array, Groups, Visits
from kaestat.core.checks import check_factors, check_factors_like, check_shapes
from kaestat.inference.bernstein import bernstein_half_width
from kaestat.inference.chernoff import chernoff_interval
from kaestat.inference.honest import confidence_level, honest_half_width
from kaestat.inference.linear_fit import LinearFit
from kaestat.inference.score import score_interval
from kaestat.smoothing.kernels import Kernel
from kaestat.smoothing.selectors import Selector

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("chernoff", "score", "normal", "robust", "honest", "bernstein")
BOUNDED = ("chernoff", "score", "bernstein")  # rest on the range of the rewards, and lie within it
DRIFTING = ("chernoff", "score", "honest", "bernstein")  # take a Lipschitz constant


@dataclass(frozen=True, eq=False)
class ValueInterval:
    """Interval estimates of values, from `value_interval`.

    Attributes
    ----------
    estimate, se, low, high : array, shape (..., P)
        NaN for a prompt without data; ``se``, and what rests on it, also where no variance can be estimated (a single
        completion in reach).
    effective_size : array, shape (..., P)
        Effective number of completions behind the estimate (`effective_sample_size`).
    kind : str
        One of `KINDS`.
    level : float
        Confidence level.
    prompt_ids : sequence of hashables, length P, optional
        Taken from the groups.
    """

    estimate: Array
    se: Array
    low: Array
    high: Array
    effective_size: Array
    kind: str
    level: float
    prompt_ids: Sequence[Hashable] | None = None

    def to_frame(self) -> pd.DataFrame:
        """One row per prompt (and per entry of the leading axes, as ``axis_0``, ``axis_1``, ...).

        Columns are ``prompt`` (the identifier, or the position without identifiers), ``estimate, se, low, high,
        effective_size, kind, level``.
        """
        import pandas as pd

        columns = {name: _numpy(getattr(self, name)) for name in ("estimate", "se", "low", "high", "effective_size")}
        *leading, prompt = np.indices(columns["estimate"].shape)
        labels = (
            prompt.reshape(-1) if self.prompt_ids is None else [self.prompt_ids[p] for p in prompt.reshape(-1).tolist()]
        )
        return pd.DataFrame(
            {f"axis_{k}": axis.reshape(-1) for k, axis in enumerate(leading)}
            | {"prompt": labels}
            | {name: column.reshape(-1) for name, column in columns.items()}
            | {"kind": self.kind, "level": self.level}
        )


def value_interval(
    groups: Groups,
    visits: Visits,
    *,
    step: int | Array,
    kernel: str | Kernel | Callable[[Array], Array] = "triangular",
    bandwidth: float | str | Selector = 10.0,
    kind: Literal["chernoff", "score", "normal", "robust", "honest", "bernstein"] = "chernoff",
    level: float = 0.95,
    lipschitz: float | Array | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    reward_variance: float | Array | None = None,
) -> ValueInterval:
    """Confidence interval for the value ``V_i(x)`` of each prompt at the current step.

    Here, unlike for a baseline, the *whole* current group enters: nothing is left out. Weights of completions play no
    part, since the value is the plain mean reward.

    =============  ======================================================  ============  ============
    kind           covers                                                  everywhere    n >= 30
    =============  ======================================================  ============  ============
    ``chernoff``   V_i, if it changes by at most ``lipschitz`` a step:     0.98 to 1.00  0.98 to 1.00
                   proven, at every sample size
    ``score``      the same, from about 30 effective completions on,       0.89 to 0.98  0.93 to 0.98
                   where it is a quarter shorter
    ``bernstein``  the same, proven, and longer by a sixth to 3.5 times    1.00          1.00
    ``honest``     the same, with many completions and a value away        0.21 to 0.99  0.80 to 0.98
                   from the bounds
    ``robust``     V_i, if it drifts smoothly (two derivatives), with      0.21 to 0.95  0.54 to 0.94
                   many completions and a value away from the bounds
    ``normal``     the smoothed value ``sum_v w_v n_v V_v``, not V_i: at   0.21 to 0.95  0.54 to 0.95
                   the MSE-optimal bandwidth and worst-case drift 89 %
    =============  ======================================================  ============  ============

    The columns on the right are least and largest coverage of 95 % intervals in the study `interval_few_visits` (0/1
    rewards of value .05, .2 and .5; groups of 1, 2 and 8; 4 and 12 visits; bandwidths 5, 10 and 100; values that are
    constant or fall by .01 a step), over all its settings, and over those of 30 effective completions or more.

    All are centred at the kernel mean but ``robust``, which is a local linear fit: the kernel mean less its estimated
    bias. ``normal``, ``robust`` and ``honest`` rest on the normal approximation and an estimated standard error
    (`LinearFit.reward_variance`; only ``honest`` allows for its degrees of freedom): a prompt whose rewards are all
    alike gets ``se = 0``. All take the bandwidth as given before the data.

    Parameters
    ----------
    groups : Groups
        Current rewards, shape (..., P, G). G may be 0: the estimate then rests on the past alone.
    visits : Visits
        Past visits, shape (..., P, V).
    step : int, or array broadcastable to (..., 1, 1)
        Current step; only bandwidths that depend on it read it.
    kernel, bandwidth
        As in `kaestat.baselines.Kae`.
    kind : {"chernoff", "score", "normal", "robust", "honest", "bernstein"}
        See above.
    level : float
        Confidence level, in [0.5, 1).
    lipschitz : float or array broadcastable to (..., P), optional
        Largest change of the value in one step. ``honest`` needs it; ``chernoff``, ``score`` and ``bernstein`` take
        None for 0, a value that does not change within reach of the kernel; the others ignore it.
    bounds : (float, float)
        Range of the rewards: ``chernoff``, ``score`` and ``bernstein`` rest on it, and lie within it. The others ignore
        it.
    reward_variance : float or array broadcastable to (..., P), optional
        Variance of a single reward where it is known; ``chernoff``, ``score`` and ``bernstein`` have it in ``se``
        alone.

    Returns
    -------
    ValueInterval
        Arrays of shape (..., P), of the kind of the rewards.

    Raises
    ------
    ValueError
        If ``kind`` is unknown, a number is out of range, ``honest`` has no ``lipschitz``, or ``chernoff``, ``score`` or
        ``bernstein`` meets rewards outside ``bounds``.

    References
    ----------
    See `chernoff_interval` and `score_interval` for theirs.
    Calonico, S., Cattaneo, M. D. and Farrell, M. H. (2018), On the effect of bias estimation on coverage accuracy in
    nonparametric inference (``robust``, with equal bandwidths for estimate and bias).
    Armstrong, T. B. and Kolesar, M. (2020), Simple and honest confidence intervals in nonparametric regression.
    Maurer, A. and Pontil, M. (2009), Empirical Bernstein bounds and sample variance penalization.

    Examples
    --------
    >>> import numpy as np
    >>> from kaestat import Groups, Visits
    >>> past = Visits(*(np.array([row]) for row in ([2.0, 1.0], [8.0, 8.0], [3.0, 5.0], [3.0, 5.0])))
    >>> interval = value_interval(
    ...     Groups(np.array([[1.0, 0, 1, 1, 0, 1, 1, 0]])), past, step=2, bandwidth=4, lipschitz=0.01
    ... )
    >>> interval.to_frame()[["estimate", "low", "high"]].round(3)
       estimate    low   high
    0     0.569  0.285  0.826
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    level = confidence_level(level)
    if kind == "honest" and lipschitz is None:
        raise ValueError(
            "kind 'honest' needs lipschitz, the largest change of the value in one step (for example 0.01); without "
            "such knowledge use kind='robust', or kind='chernoff' for a value that is taken to be constant."
        )
    lipschitz = None if lipschitz is None else check_factors_like("lipschitz", lipschitz, least=0)
    reward_variance = (
        None if reward_variance is None else check_factors_like("reward_variance", reward_variance, least=0)
    )
    fit = LinearFit.kernel_mean(groups, visits, step=step, kernel=kernel, bandwidth=bandwidth)
    xp = fit.xp
    for name, given in (("lipschitz", lipschitz), ("reward_variance", reward_variance)):
        if given is not None and np.ndim(given):
            check_shapes(**{"value": fit.estimate, name: given})
    if kind == "robust":
        fit = fit.local_linear()
    se = fit.standard_error(reward_variance)
    drift = 0.0 if lipschitz is None else lipschitz
    if kind in BOUNDED:
        bounds = _checked_bounds(bounds, fit.sample)
    if kind == "chernoff":
        low, high = chernoff_interval(fit, level, bounds, drift)
    elif kind == "score":
        low, high = score_interval(fit, _normal_quantile(level), bounds, fit.bias_bound(drift))
    else:
        if kind == "bernstein":
            half_width = bernstein_half_width(fit, level, bounds) + fit.bias_bound(drift)
        elif kind == "honest":
            freedom = fit.degrees_of_freedom if reward_variance is None else None
            half_width = honest_half_width(fit.bias_bound(lipschitz), se, level, freedom)
        else:
            half_width = _normal_quantile(level) * se
        low, high = fit.estimate - half_width, fit.estimate + half_width
        if kind == "bernstein":
            low, high = xp.clip(low, bounds[0], None), xp.clip(high, None, bounds[1])
    return ValueInterval(fit.estimate, se, low, high, fit.effective_size, kind, level, groups.prompt_ids)


def _normal_quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))


def _checked_bounds(bounds: tuple[float, float], sample: Visits) -> tuple[float, float]:
    ends = check_factors("bounds", bounds, ndim=1)
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise ValueError(f"bounds must be two finite numbers, the lower first, got {bounds!r}.")
    low, high = ends.tolist()
    xp = array_namespace(sample.total)
    slack = 1e-6 * (high - low) * sample.count
    outside = (sample.total < low * sample.count - slack) | (sample.total > high * sample.count + slack)
    if bool(xp.any(outside)):
        raise ValueError(
            f"rewards lie outside bounds={bounds!r}; give the range that they are sure to keep to, or take one of the "
            "kinds that need none ('normal', 'robust', 'honest')."
        )
    return low, high


def _numpy(values: Array) -> np.ndarray:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
