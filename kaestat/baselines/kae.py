"""KAE: kernelized advantage estimation, Algorithm 1 of the paper."""

import math
from dataclasses import dataclass
from typing import Literal

from kaestat.baselines.kernel_mean import KernelBaseline, cold_start_value
from kaestat.core.arrays import Array, Groups, Visits, as_like, ratio
from kaestat.smoothing.selectors import Fixed

NORMALIZATIONS = ("nadaraya-watson", "algorithm1")


@dataclass(frozen=True)
class Kae(KernelBaseline):
    """Kernel-weighted mean of the prompt's past rewards and the rest of its current group.

    ::

        Vhat_g = [ sum_v K(l_v / b) S_v  +  K(0) (sum_k Z_k - Z_g) ] / M

    with past visits v of lag ``l_v``, count ``n_v`` and reward sum ``S_v`` (paper, Algorithm 1, line 8), and

    - ``normalization="nadaraya-watson"``: ``M = sum_v K(l_v / b) n_v + K(0) (G - 1)``, the paper's experiments;
    - ``normalization="algorithm1"``: ``M = (b / i) sum_v n_v + K(0) (G - 1)`` over the whole history, the paper's
      theory (``h |H_i| + K(0) (G - 1)``); it equals the first only when visits are evenly spread over the steps.

    With weights, sums of W and of W Z replace counts and rewards. If heavy completions are rare
    (wrong answers late in a run), the value of a prompt without one so far is far off; `KaeEb` learns from other
    prompts.

    Parameters
    ----------
    kernel, bandwidth, cold_start
        See `KernelBaseline`; M is 0 for a lone completion of a prompt without usable past. The bandwidth is learned
        along the run unless given; the paper uses 10 steps.
    normalization : {"nadaraya-watson", "algorithm1"}
        The denominator.

    Examples
    --------
    Two rewards of 1 a step ago, and rewards 1 and 0 now. With ``K(u) = 2 (1 - u)`` and b = 4, K(1/4) = 1.5 and
    K(0) = 2, so the first completion has ``(1.5 * 2 + 2 * 0) / (1.5 * 2 + 2 * 1) = .6``. With the other denominator,
    ``(4 / 1) * 2 + 2 * 1 = 10``, it has .3:

    >>> import numpy as np
    >>> from kaestat import Groups, Visits, make_baseline
    >>> past, now = Visits.of([[1.0]], np.array([[[1.0, 1.0]]])), Groups(np.array([[1.0, 0.0]]))
    >>> make_baseline("kae", bandwidth=4).values(now, past, step=1).tolist()
    [[0.6, 1.0]]
    >>> make_baseline("kae", bandwidth=4, normalization="algorithm1").values(now, past, step=1).tolist()
    [[0.3, 0.5]]
    """

    normalization: Literal["nadaraya-watson", "algorithm1"] = "nadaraya-watson"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.normalization, str) or self.normalization not in NORMALIZATIONS:
            raise ValueError(f"normalization must be one of {NORMALIZATIONS}, got {self.normalization!r}.")
        if self.normalization == "algorithm1" and self.bandwidth == Fixed(math.inf):
            raise ValueError('normalization="algorithm1" divides by the bandwidth, so bandwidth must be finite.')

    @property
    def horizon(self) -> float:
        return math.inf if self.normalization == "algorithm1" else super().horizon

    @property
    def refuses_prior(self) -> str | None:
        if self.normalization == "nadaraya-watson":
            return None
        return 'normalization="algorithm1" assumes evenly spread completions, which those of a prior are not'

    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        xp, at_zero, weight = groups.xp, self.weighting.at_zero, self.weights(visits, bandwidth)
        mass, carried = (xp.vecdot(weight, column)[..., None] for column in (visits.mass, visits.carried))
        if self.normalization == "algorithm1":
            elapsed = xp.clip(as_like(step, visits.lag), 1.0, None)
            mass = bandwidth / elapsed * xp.sum(visits.mass, axis=-1, keepdims=True)
        others_mass, others_carried = groups.others()
        mass = mass + at_zero * others_mass
        value = ratio(carried + at_zero * others_carried, mass, 0.0, xp)
        if bool(xp.all(mass > 0)):
            return value
        return xp.where(mass > 0, value, cold_start_value(groups, self.cold_start, self.nobody))
