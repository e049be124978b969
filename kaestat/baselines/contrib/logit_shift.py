"""Reference pass rates, shifted on the logit scale by one number estimated from the other prompts of the step."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import device

from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Array, Groups, Visits, ratio

FARTHEST, SPACING = 8.0, 0.1  # shifts looked at: logits -8..8


@dataclass(frozen=True)
class LogitShift(RangedBaseline):
    """A reference pass rate for each prompt, moved by a shift common to all prompts; after a summary of BASIS.

    Where a policy maximises reward under a penalty ``beta`` on its divergence from a reference policy, a reward of 0 or
    1 succeeds at ``logit V = logit p0 + 1 / beta`` with p0 the reference's rate. So one number turns the reference
    rates into the values of now, and each step has as many observations of it as completions (Gong et al., 2026). With
    k successes of the other prompts' n completions each::

        p0 = (k0 + 1/2) / (n0 + 1),    V_i = sigmoid(logit p0_i + s_i),
        s_i:  sum_{j != i} k_j = sum_{j != i} n_j sigmoid(logit p0_j + s_i)

    which is the maximum of the likelihood over the other prompts, so that no reward of the prompt itself enters its
    value. k0 and n0 are those of the prompt's *oldest* visit: a `kaestat.Prior`, or the first visit of the run. Prompts
    without one have the mean of the other prompts, and do not enter the shift.

    Shifts lie between -8 and 8; the sums are looked at every 0.1 and interpolated between.

    Parameters
    ----------
    low, high : float
        Range of the rewards; see `RangedBaseline`.

    Raises
    ------
    ValueError
        From `values`, if a reward lies outside the range.
    """

    shrinks: ClassVar[bool] = True
    counts_suffice: ClassVar[bool] = True

    @property
    def pools_prompts(self) -> bool:
        return True

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp = groups.xp
        groups, visits = self.to_unit(groups, visits)
        self.check_in_unit("logit_shift moves success rates", groups, visits)
        mass, carried = groups.other_prompts()
        unknown = ratio(carried, mass, 0.0, xp)
        if visits.lag.shape[-1] == 0:
            return self.from_unit(unknown + xp.zeros_like(groups.reward))
        count, total = _oldest(visits, xp)
        known = xp.astype(count > 0, count.dtype)
        logit = xp.log((total + 0.5) / (count - total + 0.5))
        value = _expit(logit + _shift(groups, known, logit), xp)
        return self.from_unit(xp.where(known > 0, value, unknown) + xp.zeros_like(groups.reward))

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        """The effective completions of the oldest visit."""
        if visits.lag.shape[-1] == 0:
            return groups.xp.zeros_like(groups.reward[..., :1])
        return _oldest(visits, groups.xp)[0]


def _oldest(visits: Visits, xp: Any) -> tuple[Array, Array]:
    """Completions and successes of each prompt's oldest visit, (..., P, 1); 0 where there is none."""
    there = xp.astype(visits.count > 0, visits.count.dtype)
    first = there * xp.astype(xp.cumulative_sum(there, axis=-1) == 1, there.dtype)
    count, total = (xp.sum(first * column, axis=-1, keepdims=True) for column in (visits.count, visits.total))
    return count, xp.minimum(xp.clip(total, 0.0, None), count)  # the mapping to [0, 1] rounds


def _shift(groups: Groups, known: Array, logit: Array) -> Array:
    """Shift of each prompt from the others of which a reference is known, (..., P, 1); 0 without any."""
    xp = groups.xp
    count = known * xp.sum(groups.present, axis=-1, keepdims=True)
    successes = known * xp.sum(groups.carried, axis=-1, keepdims=True)
    grid = np.linspace(-FARTHEST, FARTHEST, round(2 * FARTHEST / SPACING) + 1)
    shifts = xp.asarray(grid, dtype=logit.dtype, device=device(logit))
    expected = groups.pooled(count * _expit(logit + shifts, xp))
    others_count, others_successes = groups.pooled_others(count), groups.pooled_others(successes)
    among = (others_count, others_successes, expected, logit)
    leading = np.broadcast_shapes(*(tuple(array.shape[:-1]) for array in among))
    expected = xp.broadcast_to(expected, (*leading, len(grid)))

    def excess(place: Array) -> Array:
        """Successes of the others beyond those expected; falls with the place, through 0 at the shift sought."""
        own = count * _expit(logit + xp.reshape(xp.take(shifts, xp.reshape(place, (-1,))), place.shape), xp)
        return others_successes - (xp.take_along_axis(expected, place, axis=-1) - own)

    # Bisection for the number of places at which there is an excess: nothing but the bracket of the shift is looked at.
    passed = xp.zeros((*leading, 1), dtype=xp.int64, device=device(logit))
    for size in 2 ** np.arange(len(grid).bit_length() - 1, -1, -1):
        further = passed + int(size)
        there = excess(xp.clip(further, None, len(grid)) - 1) > 0
        passed = xp.where(there & (further <= len(grid)), further, passed)
    here, next_ = (excess(xp.clip(place, 0, len(grid) - 1)) for place in (passed - 1, passed))
    within = (passed > 0) & (passed < len(grid))
    steps = xp.clip(xp.astype(passed, logit.dtype) - 1, 0.0, None)
    steps = steps + xp.where(within, ratio(here, here - next_, 0.0, xp), xp.zeros_like(here))
    return xp.where(others_count > 0, SPACING * steps - FARTHEST, xp.zeros_like(steps))


def _expit(logit: Array, xp: Any) -> Array:
    return 1 / (1 + xp.exp(-logit))
