"""The oracle: the true value, given."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kaestat.arrays import Array, Groups, Visits
from kaestat.baselines.base import Baseline


@dataclass(frozen=True, eq=False)
class Oracle(Baseline):
    """The value that is handed in: the bound that every estimator is measured against.

    Parameters
    ----------
    value : mapping, callable or array
        ``{prompt_id: value}``; or ``value(prompt_ids, step) -> sequence of P values``; or an array broadcastable to
        (..., P), for direct use on arrays.

    Raises
    ------
    ValueError
        If no value is given, or a prompt's is missing.
    """

    value: Mapping[Hashable, float] | Callable[[list[Hashable], int | Array], Array] | Array | None = None

    stepwise: ClassVar[bool] = True

    @property
    def missing_input(self) -> str | None:
        return None if self.value is not None else "value= (a mapping, a function of prompt ids and step, or an array)"

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp = groups.xp
        if self.value is None:
            raise ValueError(f"oracle: give it {self.missing_input}.")
        value = self.value
        if isinstance(value, Mapping) or callable(value):
            if groups.prompt_ids is None:
                raise ValueError("oracle: groups carry no prompt_ids to look values up by; give value as an array.")
            value = _look_up(value, list(groups.prompt_ids), step)
        value = xp.asarray(value, dtype=groups.reward.dtype)
        return value[..., None] + xp.zeros_like(groups.reward)


def _look_up(
    value: Mapping[Hashable, float] | Callable[[list[Hashable], int | Array], Array],
    prompt_ids: list[Hashable],
    step: int | Array,
) -> np.ndarray:
    if callable(value):
        found = np.asarray(value(prompt_ids, step), dtype=float)
        if found.shape != (len(prompt_ids),):
            raise ValueError(f"oracle: value(...) must return {len(prompt_ids)} numbers, got shape {found.shape}.")
        return found
    missing = [prompt for prompt in prompt_ids if prompt not in value]
    if missing:
        raise ValueError(f"oracle: no value given for prompt {missing[0]!r} (and {len(missing) - 1} more).")
    return np.array([value[prompt] for prompt in prompt_ids], dtype=float)
