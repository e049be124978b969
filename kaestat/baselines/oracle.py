"""The oracle: the true value, which the user gives."""

from dataclasses import dataclass
from typing import ClassVar

from kaestat.baselines.given_values import Given, GivenBaseline


@dataclass(frozen=True, eq=False)
class Oracle(GivenBaseline):
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

    argument: ClassVar[str] = "value"
