"""One number per prompt, given by the user and looked up for the prompts of a step."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kaestat.baselines.base import WithoutVisits
from kaestat.core.arrays import Array, Groups, Visits

Given = Mapping[Hashable, float] | Callable[[list[Hashable], int | Array], Array] | Array


def missing(argument: str, given: Given | None) -> str | None:
    """What a baseline lacks while the numbers are not given."""
    return None if given is not None else f"{argument}= (a mapping, a function of prompt ids and step, or an array)"


def given_values(owner: str, argument: str, given: Given | None, groups: Groups, step: int | Array) -> Array:
    """The given number of each prompt, for each of its completions, (..., P, G).

    Numbers are a mapping ``{prompt_id: number}``, a function ``given(prompt_ids, step)`` of P numbers, or an array
    broadcastable to (..., P). ``owner`` and ``argument`` are for messages. A ValueError if a prompt's
    number is missing or not finite, or there are more or fewer than prompts.
    """
    if given is None:
        raise ValueError(f"{owner}: give it {missing(argument, given)}.")
    xp = groups.xp
    if isinstance(given, Mapping) or callable(given):
        if groups.prompt_ids is None:
            raise ValueError(
                f"{owner}: groups carry no prompt_ids to look {argument}s up by; give {argument} as an array."
            )
        given = _look_up(owner, argument, given, list(groups.prompt_ids), step)
        if not np.isfinite(given).all():
            bad = int(np.argmin(np.isfinite(given)))
            raise ValueError(
                f"{owner}: {argument} of prompt {groups.prompt_ids[bad]!r} is {given[bad]}; give a finite number."
            )
    found: Any = xp.asarray(given, dtype=groups.reward.dtype)
    if found.ndim and found.shape[-1] not in (1, n_prompts := groups.reward.shape[-2]):
        raise ValueError(
            f"{owner}: {argument} has {found.shape[-1]} numbers for {n_prompts} prompts; give a mapping or a function."
        )
    return found[..., None] + xp.zeros_like(groups.reward)


def _look_up(
    owner: str,
    argument: str,
    given: Mapping[Hashable, float] | Callable[[list[Hashable], int | Array], Array],
    prompt_ids: list[Hashable],
    step: int | Array,
) -> np.ndarray:
    if callable(given):
        found = np.asarray(given(prompt_ids, step), dtype=float)
        if found.shape != (len(prompt_ids),):
            raise ValueError(
                f"{owner}: {argument}(...) must return {len(prompt_ids)} numbers, got shape {found.shape}."
            )
        return found
    missing = [prompt for prompt in prompt_ids if prompt not in given]
    if missing:
        raise ValueError(f"{owner}: no {argument} given for prompt {missing[0]!r} (and {len(missing) - 1} more).")
    return np.array([given[prompt] for prompt in prompt_ids], dtype=float)


@dataclass(frozen=True, eq=False)
class GivenBaseline(WithoutVisits):
    """Base class of the baselines whose values are given, as the field named ``argument``."""

    stepwise: ClassVar[bool] = True
    argument: ClassVar[str]

    @property
    def missing_input(self) -> str | None:
        return missing(self.argument, getattr(self, self.argument))

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        given = getattr(self, self.argument)
        return given_values(type(self).__name__.lower(), self.argument, given, groups, step)
