"""A value estimate as a weighted sum of rewards, with its effective size and worst-case bias."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kaestat.core.arrays import Array, Groups, Namespace, Visits, namespace, ratio
from kaestat.smoothing.kernels import Kernel, as_kernel
from kaestat.smoothing.selectors import Selector, as_selector
from kaestat.theory.linear import largest_bias


@dataclass(frozen=True, eq=False)
class LinearFit:
    """``Vhat = sum_v w_v S_v`` over the visits of each prompt, including the current group.

    Attributes
    ----------
    sample : Visits
        Past visits and, last, the whole current group as a visit of lag 0; shape (..., P, V + 1).
    weight : array, shape (..., P, V + 1)
        Weight of a *completion* of each visit, 0 in the padding, so that ``sum_v w_v n_v = 1``; NaN for a prompt
        without any completion of positive weight.
    """

    sample: Visits
    weight: Array

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
            Current rewards, shape (..., P, G). All are used: nothing is left out.
        visits : Visits
            Past visits, shape (..., P, V).
        step : int, or array broadcastable to (..., 1, 1)
            Current step; only bandwidths that depend on it use it.
        kernel, bandwidth
            As in `kaestat.baselines.Kae`.
        """
        kernel = as_kernel(kernel)
        sample = _with_current(groups, visits)
        xp = namespace(sample.count)
        weight = xp.zeros_like(sample.count)
        for width, share in as_selector(bandwidth).resolve(visits, sample.count[..., -1:], step=step, kernel=kernel):
            raw = kernel.weight(sample.lag / width, xp) * xp.astype(sample.count > 0, sample.count.dtype)
            weight = weight + share * ratio(raw, xp.sum(raw * sample.count, axis=-1, keepdims=True), math.nan, xp)
        return cls(sample, weight)

    @property
    def xp(self) -> Namespace:
        """The array namespace (NumPy's or torch's)."""
        return namespace(self.weight)

    @cached_property
    def estimate(self) -> Array:
        """The value, shape (..., P)."""
        return self.xp.sum(self.weight * self.sample.total, axis=-1)

    @property
    def effective_size(self) -> Array:
        """Equivalent number of equally weighted completions, ``(sum w_v n_v)^2 / sum w_v^2 n_v``; (..., P)."""
        xp, count = self.xp, self.sample.count
        return ratio(xp.sum(self.weight * count, axis=-1) ** 2, xp.sum(self.weight**2 * count, axis=-1), 0.0, xp)

    def bias_bound(self, lipschitz: float | Array) -> Array:
        """Largest bias if the value changes by at most ``lipschitz`` per step, shape (..., P); a sharp bound."""
        return largest_bias(self.weight * self.sample.count, self.sample.lag, lipschitz)


def _with_current(groups: Groups, visits: Visits) -> Visits:
    """The past visits followed by the current group as one more visit, of lag 0."""
    xp, present = groups.xp, groups.present
    reward = xp.where(present > 0, groups.reward, xp.zeros_like(groups.reward))
    current = {"lag": 0 * present, "count": present, "total": reward, "total_sq": reward**2}
    past = {name: getattr(visits, name) for name in current}
    leading = np.broadcast_shapes(present.shape[:-1], *(column.shape[:-1] for column in past.values()))
    joined = {}
    for name, column in past.items():
        newest = xp.broadcast_to(xp.sum(current[name], axis=-1, keepdims=True), (*leading, 1))
        joined[name] = xp.concat([xp.broadcast_to(column, (*leading, column.shape[-1])), newest], axis=-1)
    # Padding may have any finite lag; at 0 it cannot affect results that depend on lags.
    joined["lag"] = xp.where(joined["count"] > 0, joined["lag"], xp.zeros_like(joined["lag"]))
    return Visits(**joined)
