"""KAE with empirical Bayes that shrinks towards a given value, such as a value model's prediction."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from kaestat.baselines.given_values import Given, given_values, missing
from kaestat.baselines.kae_eb import KaeEb
from kaestat.core.arrays import Array, Groups, Visits, ratio
from kaestat.core.digits import ROUNDING, variance_from


@dataclass(frozen=True, eq=False)
class OutsideValue(KaeEb):
    """A given value V of each prompt, plus `KaeEb` of the differences between rewards and V.

    The kernel mean of past rewards and the rest of the group is shrunk towards V plus an offset instead of the other
    prompts' mean; the method's page has the equations. The weight comes from the other prompts of the step, by
    `KaeEb`'s moments of the differences of their means from V. With five other prompts or fewer nothing is estimated,
    and V is used only for prompts without other data.

    Parameters
    ----------
    kernel, bandwidth, cold_start
        See `KaeEb`; a number for ``cold_start`` is the offset delta.
    outside : mapping, callable or array
        ``{prompt_id: value}``, looked up at every step, so the caller may update it before each step; or
        ``outside(prompt_ids, step) -> sequence of P values``; or an array broadcastable to (..., P), for direct use on
        arrays. It must not depend on the rewards of the step. A `kaestat.AsynchronousEstimator` that learns its
        bandwidth asks again for the values of all prompts of a recent step whose visits changed, so an array of the
        wrong length is then refused.

    Raises
    ------
    ValueError
        If no values are given, or a prompt's is missing or not finite.
    """

    stepwise: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = False
    knows_unseen: ClassVar[bool] = True
    center: ClassVar[float] = 0.0  # what is subtracted from rewards; see `less`

    outside: Given | None = None

    @property
    def missing_input(self) -> str | None:
        return missing("outside", self.outside)

    def less(self, center: float) -> Self:
        return self._with("center", self.center + center)

    def values_at(self, groups: Groups, visits: Visits, bandwidth: Array | float, step: int | Array) -> Array:
        xp, value = groups.xp, self._given(groups, step)
        found = value + super().values_at(*_less(groups, visits, value), bandwidth, step)
        # Where all rewards are 0, a learned bandwidth would choose by this rounding.
        return xp.where(xp.abs(found) <= ROUNDING * xp.finfo(found.dtype).eps * xp.abs(value), 0.0, found)

    def effective_completions(
        self, groups: Groups, visits: Visits, *, step: int | Array, carry: object = None
    ) -> Array:
        shifted = _less(groups, visits, self._given(groups, step))
        return super().effective_completions(*shifted, step=step, carry=carry)

    def _given(self, groups: Groups, step: int | Array) -> Array:
        return given_values("outside_value", "outside", self.outside, groups, step) - self.center


def _less(groups: Groups, visits: Visits, value: Array) -> tuple[Groups, Visits]:
    """Groups and visits of the differences of rewards from a value (..., P, G), one for each row."""
    row = value[..., :1]
    xp = groups.xp
    mean, square = (ratio(column, visits.count, 0.0, xp) for column in (visits.total, visits.total_sq))
    total = visits.total - row * visits.count
    total_sq = (variance_from(square, mean) + (mean - row) ** 2) * visits.count
    return replace(groups, reward=groups.reward - value), replace(visits, total=total, total_sq=total_sq)
