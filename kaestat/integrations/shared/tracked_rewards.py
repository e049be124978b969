"""`SeveralRewards` as trainers need them."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.integrations.shared.tracked_estimator import TrackedEstimator


class TrackedRewards(TrackedEstimator):
    """A `TrackedEstimator` of several rewards: where it says a reward it takes a row of them.

    Parameters
    ----------
    estimator : SeveralRewards

    Attributes
    ----------
    metrics : dict of str to float
        Each as ``baseline/REWARD/NAME``.
    """

    _kind: ClassVar[type] = SeveralRewards
    estimator: Any

    def __init__(self, estimator: SeveralRewards):
        super().__init__(cast(AdvantageEstimator, estimator))

    @property
    def any_order(self) -> bool:
        """Never: several rewards come in strict order."""
        return False

    def _parts(self) -> dict[str, AdvantageEstimator]:
        return {f"{name}/": each for name, each in self.estimator.estimators.items()}


def watched(estimator: AdvantageEstimator | SeveralRewards) -> TrackedEstimator:
    """An estimator, or several of them, as a trainer needs it."""
    return TrackedRewards(estimator) if isinstance(estimator, SeveralRewards) else TrackedEstimator(estimator)
