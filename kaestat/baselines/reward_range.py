"""Rewards of a known range mapped to [0, 1], for the baselines whose parameters assume success rates."""

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Self

from kaestat.baselines.base import Baseline
from kaestat.core.arrays import Array, Groups, Visits
from kaestat.core.checks import check_number


@dataclass(frozen=True)
class RangedBaseline(Baseline):
    """Base class of the baselines that treat rewards as successes and failures, or shares of success.

    Raises a ValueError if the range is empty.

    Parameters
    ----------
    low, high : float
        Range of the rewards, for example -1 and 1. Rewards are mapped to [0, 1], and values back; all other
        parameters are for rewards in [0, 1].
    """

    relative: ClassVar[bool] = True

    _: KW_ONLY
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        check_number("low", self.low)
        check_number("high", self.high)
        if not self.low < self.high:
            raise ValueError(f"low must be less than high, got {self.low!r} and {self.high!r}.")

    @property
    def bounds_rewards(self) -> bool:
        return False  # their range does

    def less(self, center: float) -> Self:
        return replace(self, low=self.low - center, high=self.high - center) if center else self

    def to_unit(self, groups: Groups, visits: Visits) -> tuple[Groups, Visits]:
        """Groups and visits with their rewards mapped to [0, 1]."""
        if (self.low, self.high) == (0.0, 1.0):
            return groups, visits
        width = self.high - self.low
        squares = visits.total_sq - 2 * self.low * visits.total + self.low**2 * visits.count
        return (
            replace(groups, reward=(groups.reward - self.low) / width),
            replace(visits, total=(visits.total - self.low * visits.count) / width, total_sq=squares / width / width),
        )

    def check_in_unit(self, reason: str, groups: Groups, visits: Visits, *, warn: bool = False) -> None:
        """Raise a ValueError with the reason, or warn, unless rewards mapped by `to_unit` lie in [0, 1]."""
        xp, farthest = groups.xp, max(abs(self.low), abs(self.high)) / (self.high - self.low)
        # z^2 > z for every reward outside [0, 1]; completions are checked one by one, visits by their sums.
        for total, total_sq, count in (
            (visits.total, visits.total_sq, visits.count),
            (groups.carried, groups.carried * groups.reward, groups.present),
        ):
            rounding = (1e-9 + 1e-15 * farthest**2) * count  # squares of rewards far from 0 cancel
            if not bool(xp.any((total < -rounding) | (total_sq > total + rounding))):
                continue
            message = f"rewards: {reason}, so every reward {'should' if warn else 'must'} lie in "
            message += f"[{self.low:g}, {self.high:g}]; give the range of others as low= and high=."
            if not warn:
                raise ValueError(message)
            warnings.warn(message, stacklevel=3)
            return

    def from_unit(self, value: Array) -> Array:
        """A value on [0, 1], mapped back to the rewards' own range."""
        return value if (self.low, self.high) == (0.0, 1.0) else self.low + (self.high - self.low) * value


def on_range(baseline: Baseline, low: float, high: float) -> Baseline:
    """The same baseline for rewards of that range; unchanged if it has one, or needs none."""
    if not isinstance(baseline, RangedBaseline) or (baseline.low, baseline.high) != (0.0, 1.0):
        return baseline
    return replace(baseline, low=low, high=high)
