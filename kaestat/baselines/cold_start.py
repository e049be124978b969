"""The value of a prompt without any data."""

from typing import Any, Literal

from kaestat.core.arrays import Array, Groups, ratio
from kaestat.core.checks import check_number

ColdStart = Literal["batch_mean"] | float


def cold_start_value(groups: Groups, cold_start: ColdStart, nobody: float = 0.0) -> Array:
    """The given number, or the mean of the other prompts of the step and ``nobody`` without any; shape (..., P, 1)."""
    mass, carried = groups.other_prompts()
    if cold_start == "batch_mean":
        return ratio(carried, mass, nobody, groups.xp)
    return groups.xp.full_like(carried, float(cold_start))


def check_cold_start(cold_start: Any) -> None:
    """Raise unless ``cold_start`` is "batch_mean" or a finite number."""
    if not isinstance(cold_start, str):
        check_number("cold_start", cold_start)
    elif cold_start != "batch_mean":
        raise ValueError(f'cold_start must be "batch_mean" or a number, got {cold_start!r}.')
