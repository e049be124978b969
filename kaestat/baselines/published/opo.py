"""OPO: the group mean with every completion weighted by its length."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kaestat.baselines.group_mean import GroupMean
from kaestat.core.arrays import Array, Groups, Visits


@dataclass(frozen=True)
class Opo(GroupMean):
    """Length-weighted mean reward of the group, ``sum L Z / sum L`` (Hao et al., 2025, arXiv:2505.23585).

    The length is a stand-in for the squared norm of the completion's score, so this is the variance-optimal constant
    ``E[W Z] / E[W]`` with weights that cost nothing. It contains the completion's own reward, as the published
    method and verl's ``opo`` do. Weights are required: without them it would equal `GroupMean`.
    """

    needs_weights: ClassVar[bool] = True

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        """See `Baseline.values`.

        Raises
        ------
        ValueError
            If the completions have no weights.
        """
        if groups.weight is None:
            raise ValueError(
                "weights: opo weighs rewards by the lengths of completions, but got none; give weights=, the number "
                "of tokens of each completion in the loss (in a trainer weights='length')."
            )
        return super().values(groups, visits, step=step, carry=carry)
