"""A value estimate as what it is: a weighted sum of rewards, with its standard error and worst-case bias."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from array_api_compat import array_namespace

from kaestat.core.arrays import Array, Groups, Namespace, Visits, ratio
from kaestat.core.checks import check_factors_like, check_shapes
from kaestat.smoothing.kernels import Kernel, as_kernel
from kaestat.smoothing.selectors import Selector, as_selector
from kaestat.theory.linear import largest_bias


@dataclass(frozen=True, eq=False)
class LinearFit:
    """``Vhat = sum_v w_v S_v`` over the visits of each prompt, the current group among them.

    Attributes
    ----------
    sample : Visits
        Past visits and, last, the whole current group as a visit of lag 0; shape (..., P, V + 1).
    weight : array, shape (..., P, V + 1)
        Weight of a *completion* of each visit, 0 in the padding, so that ``sum_v w_v n_v = 1``; NaN for a prompt
        without any completion of positive weight.
    scatter : array, shape (..., P)
        Variance of one reward by the scatter of the rewards about the kernel mean, for want of a better estimate;
        see `reward_variance`.
    """

    sample: Visits
    weight: Array
    scatter: Array

    @classmethod
    def kernel_mean(
        cls,
        groups: Groups,
        visits: Visits,
        *,
        step: int | Array,
        kernel: str | Kernel | Callable[[Array], Array] = "triangular",
        bandwidth: float | str | Selector = 10.0,
    ) -> LinearFit:
        """The Nadaraya-Watson fit: weights proportional to ``K(lag / bandwidth)``.

        Parameters
        ----------
        groups : Groups
            Current rewards, shape (..., P, G). All of them enter: nothing is left out.
        visits : Visits
            Past visits, shape (..., P, V).
        step : int, or array broadcastable to (..., 1, 1)
            Current step; only bandwidths that depend on it read it.
        kernel, bandwidth
            As in `kaestat.baselines.Kae`.
        """
        kernel = as_kernel(kernel)
        sample = _with_current(groups, visits)
        xp = array_namespace(sample.count)
        weight = xp.zeros_like(sample.count)
        for width, share in as_selector(bandwidth).resolve(visits, sample.count[..., -1:], step=step, kernel=kernel):
            raw = kernel.weight(sample.lag / width, xp) * xp.astype(sample.count > 0, sample.count.dtype)
            weight = weight + share * ratio(raw, xp.sum(raw * sample.count, axis=-1, keepdims=True), math.nan, xp)
        return cls(sample, weight, _scatter(sample, weight, xp))

    @property
    def xp(self) -> Namespace:
        """The array namespace (NumPy's or torch's)."""
        return array_namespace(self.weight)

    @cached_property
    def estimate(self) -> Array:
        """The value, shape (..., P)."""
        return self.xp.sum(self.weight * self.sample.total, axis=-1)

    @property
    def effective_size(self) -> Array:
        """`effective_sample_size` of the weights, shape (..., P)."""
        return _effective_size(self.weight, self.sample.count)

    @cached_property
    def visit_variance(self) -> Array:
        """Unbiased reward variance within each visit; 0 for visits of fewer than two completions."""
        xp, count = self.xp, self.sample.count
        squares = self.sample.total_sq - ratio(self.sample.total**2, count, 0.0, xp)
        return ratio(xp.clip(squares, 0.0, None), count - 1, 0.0, xp)

    @cached_property
    def reward_variance(self) -> Array:
        """Variance of one reward as it enters the variance of this fit, shape (..., P).

        Where some visits with weight have two completions or more, their unbiased within-visit variances ``s_v^2``,
        pooled with the shares that they have in the variance of the fit::

            sum_v w_v^2 n_v s_v^2 / sum_v w_v^2 n_v

        If all visits have two, ``Var(Vhat) = sum_v w_v^2 n_v sigma_v^2`` is so estimated without bias, however the
        variance and the value drift. Otherwise (G = 1) the scatter of the rewards about the kernel mean m, ``sum_v w_v
        Q_v - m^2`` (``m (1 - m)`` for rewards 0 and 1), over ``1 - sum_v w_v^2 n_v``: unbiased for a constant value,
        too large if the value drifts. NaN for a single completion.
        """
        xp, count = self.xp, self.sample.count
        share = self.weight**2 * count * xp.astype(count > 1, count.dtype)
        total = xp.sum(share, axis=-1)
        return ratio(xp.sum(share * self.visit_variance, axis=-1), total, self.scatter, xp)

    @cached_property
    def degrees_of_freedom(self) -> Array:
        """Of `reward_variance`, shape (..., P), by Satterthwaite's rule for normal rewards; NaN where there are none.

        ``1 / sum_v c_v^2 / (n_v - 1)`` for within-visit variances pooled with shares ``c_v``; one less than the
        effective sample size for the scatter about the kernel mean.
        """
        xp, count = self.xp, self.sample.count
        share = self.weight**2 * count * xp.astype(count > 1, count.dtype)
        total = xp.sum(share, axis=-1)
        scatter = xp.clip(self.effective_size - 1, 0.0, None)
        squares = xp.sum(ratio(share**2, count - 1, 0.0, xp), axis=-1)
        freedom = ratio(total**2, squares, 0.0, xp)
        freedom = xp.where(total > 0, freedom, scatter)
        return xp.where(freedom > 1e-9, freedom, xp.full_like(freedom, math.nan))

    def standard_error(self, reward_variance: float | Array | None = None) -> Array:
        """``sqrt(sigma^2 sum_v w_v^2 n_v)``, shape (..., P).

        Parameters
        ----------
        reward_variance : float or array broadcastable to (..., P), optional
            The variance of one reward where it is known; None takes the estimate.
        """
        noise = self.reward_variance if reward_variance is None else reward_variance
        return self.xp.sqrt(noise * self.xp.sum(self.weight**2 * self.sample.count, axis=-1))

    def bias_bound(self, lipschitz: float | Array) -> Array:
        """Largest bias if the value changes by at most ``lipschitz`` a step, shape (..., P); attained."""
        return largest_bias(self.weight * self.sample.count, self.sample.lag, lipschitz)

    def local_linear(self) -> LinearFit:
        """The local linear fit with the same kernel and bandwidth; itself where all weight is at a single lag.

        In terms of this fit's weights, with the weighted mean lag ``d`` and variance ``v`` of the lags, the weights
        at lag 0 are ``w_k (1 - d (lag_k - d) / v)``.
        """
        xp, lag = self.xp, self.sample.lag
        mass = self.weight * self.sample.count
        center = xp.sum(mass * lag, axis=-1, keepdims=True)
        spread = xp.sum(mass * (lag - center) ** 2, axis=-1, keepdims=True)
        distinct = xp.where(spread > 1e-9 * center**2, spread, xp.zeros_like(spread))
        slope_weight = ratio(lag - center, distinct, 0.0, xp)
        return replace(self, weight=self.weight * (1 - center * slope_weight))


def effective_sample_size(weight: Array, count: Array) -> Array:
    """``(sum_v w_v n_v)^2 / sum_v w_v^2 n_v``: the number of equally weighted completions of the same variance.

    Parameters
    ----------
    weight : array, shape (..., V)
        Weight of a completion of each visit, in any scale.
    count : array, shape (..., V)
        Completions of each visit.

    Returns
    -------
    array, shape (...)
        0 where there is no weight.

    Raises
    ------
    ValueError, TypeError
        If something is not a number, a count is negative, or shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> float(effective_sample_size(np.array([1.0, 1.0]), np.array([8.0, 8.0])))
    16.0
    """
    weight, count = check_factors_like("weight", weight, ndim=1), check_factors_like("count", count, least=0, ndim=1)
    check_shapes(weight=weight, count=count)
    return _effective_size(weight, count)


def _effective_size(weight: Array, count: Array) -> Array:
    xp = array_namespace(weight, count)
    return ratio(xp.sum(weight * count, axis=-1) ** 2, xp.sum(weight**2 * count, axis=-1), 0.0, xp)


def _scatter(sample: Visits, weight: Array, xp: Namespace) -> Array:
    mean = xp.sum(weight * sample.total, axis=-1)
    scatter = xp.sum(weight * sample.total_sq, axis=-1) - mean**2
    freedom = 1 - xp.sum(weight**2 * sample.count, axis=-1)
    several = xp.where(freedom > 1e-9, freedom, xp.zeros_like(freedom))
    return ratio(xp.clip(scatter, 0.0, None), several, math.nan, xp)


def _with_current(groups: Groups, visits: Visits) -> Visits:
    """The past visits followed by the current group as one more visit, of lag 0."""
    xp = groups.xp
    present = groups.present
    reward = xp.where(present > 0, groups.reward, xp.zeros_like(groups.reward))
    count = xp.sum(present, axis=-1)
    current = {
        "lag": xp.zeros_like(count),
        "count": count,
        "total": xp.sum(reward, axis=-1),
        "total_sq": xp.sum(reward**2, axis=-1),
    }
    past = {name: getattr(visits, name) for name in current}
    depth = past["count"].shape[-1]
    leading = np.broadcast_shapes(current["count"].shape, *(column.shape[:-1] for column in past.values()))
    joined = {
        name: xp.concat(
            [xp.broadcast_to(past[name], (*leading, depth)), xp.broadcast_to(current[name], leading)[..., None]],
            axis=-1,
        )
        for name in current
    }
    # Padding may carry any finite lag; at 0 it cannot disturb what is computed from the lags.
    joined["lag"] = xp.where(joined["count"] > 0, joined["lag"], xp.zeros_like(joined["lag"]))
    return Visits(**joined)
