"""The oracle: the true value, which the user gives."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kaestat.baselines.base import WithoutVisits
from kaestat.baselines.given_values import Given, given_values, missing
from kaestat.core.arrays import Array, Groups, Visits


@dataclass(frozen=True, eq=False)
class Oracle(WithoutVisits):
    """The given true value, the bound for every estimator.

    Parameters
    ----------
    value : mapping, callable or array
        ``{prompt_id: value}``; or ``value(prompt_ids, step) -> sequence of P values``; or an array broadcastable to
        (..., P), for direct use on arrays.

    Raises
    ------
    ValueError
        If no value is given, or a prompt's is missing or not finite.
    """

    value: Given | None = None

    stepwise: ClassVar[bool] = True

    @property
    def missing_input(self) -> str | None:
        return missing("value", self.value)

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        return given_values("oracle", "value", self.value, groups, step)
