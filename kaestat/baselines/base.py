"""The base class of all baselines: small frozen objects whose `values` maps arrays to values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from kaestat.baselines.facts import Facts
from kaestat.core.arrays import Array, Groups, Visits


@dataclass(frozen=True, eq=False)
class Served:
    """The result of one training step."""

    values: Array  # shape (..., P, G); see `Baseline.values`
    carry: Any  # The carry after the step
    # The baseline with its learned part (a bandwidth, from the past alone) fixed for this step. Use it for further
    # questions about the step, so that the learning is done only once
    settled: Baseline
    # shape (..., P, S); numbers kept for each prompt after the step, for baselines with a `Baseline.state_size`
    state: Array | None = None


@dataclass(frozen=True)
class Baseline(Facts, ABC):
    """A baseline: the value to subtract from each completion's reward.

    A new one needs `values` alone; it declares where it differs from most (`Facts`). One that reads no past is a
    `WithoutVisits`. One with a state of its own has `initial_carry` and `advance`, or `serve`.
    """

    @abstractmethod
    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        """The value of each completion.

        Parameters
        ----------
        groups : Groups
            Rewards of the current step, shape (..., P, G).
        visits : Visits
            Past visits of the same prompts, shape (..., P, V).
        step : int, or array broadcastable to (..., 1, 1)
            Current training step, 0-based.
        carry : optional
            State in addition to the visits, before this step (see `initial_carry`); None means a fresh start.

        Returns
        -------
        array, shape (..., P, G)
            Finite everywhere; entries outside the mask are meaningless.
        """

    @property
    def horizon(self) -> float:
        """Largest lag (steps) at which a visit can matter. By default all can; see `WithoutVisits` for none."""
        return math.inf

    @property
    def max_visits(self) -> float:
        """Largest number of a prompt's newest visits that can matter, within the horizon."""
        return math.inf

    @property
    def pools_prompts(self) -> bool:
        """Whether the value of a prompt with visits in reach can depend on the rewards of *other* prompts.

        If it can, errors of different prompts are not independent, and `value_risk` gets its standard errors from
        replays of the log without groups of prompts. A fallback on the other prompts for a prompt without data
        (a cold start) does not count.
        """
        return False

    def own_derivative(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array | float:
        """Derivative of a completion's value in its own reward, broadcastable to (..., P, G).

        Zero for leave-one-out baselines, whose gradient is therefore unbiased.
        """
        return 0.0

    def leave_one_out(self) -> Baseline:
        """The same baseline without the completion's own reward, as in the paper's Table 1."""
        return self

    def effective_completions(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        """The number of current completions as informative as the past; shape (..., P, 1).

        For a weighted mean of past rewards it is ``1 / sum of squared weights``, and 0 without a visit in reach.
        By default all completions within the horizon count in full.

        Parameters
        ----------
        groups, visits, step, carry
            As in `values`; the rewards of the groups are not used.
        """
        xp = groups.xp
        within = xp.astype(visits.lag <= self.horizon, visits.count.dtype)
        return xp.sum(within * visits.count, axis=-1, keepdims=True)

    def deviation(self, groups: Groups, visits: Visits, *, step: int | Array) -> Array | None:
        """A scale that is part of the method (Kalman gain of `Krpo`); None for most methods."""
        return None

    def less(self, center: float) -> Self:
        """The same baseline for rewards less ``center``, its values less by as much; only if it is `relative`."""
        return self

    def initial_carry(self) -> Any:
        """Arrays (a dict of NumPy arrays) to keep between steps in addition to the visits; None if there are none."""
        return None

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> Any:
        """The carry after this step."""
        return carry

    def serve(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Served:
        """The `values` and the next carry, with shared work done once."""
        values = self.values(groups, visits, step=step, carry=carry)
        return Served(values, self.advance(carry, groups, visits, step=step), settled=self)

    # What other rooms ask follows from the above; only few methods answer for themselves.

    @property
    def in_order_only(self) -> bool:
        """Whether steps must come in order, because the baseline keeps a running state in addition to the visits."""
        return self.initial_carry() is not None

    @property
    def includes_own(self) -> bool:
        """Whether a value contains the completion's own reward, found by a trial on two groups without a past."""
        groups = Groups(np.array([[0.0, 1.0], [1.0, 1.0]]), prompt_ids=["a", "b"])
        own = self.own_derivative(groups, Visits.empty(groups), step=0, carry=self.initial_carry())
        return bool(np.any(np.asarray(own) != 0))

    @property
    def bounds_rewards(self) -> bool:
        """Whether a reward far outside those before it is bounded (`kaestat.core.seen_rewards.SeenRewards`).

        It is if later values of other prompts depend on it.
        """
        return self.pools_prompts and (self.horizon > 0 or self.in_order_only)

    def accepts_carry(self, carry: dict[str, np.ndarray] | None) -> bool:
        """Whether finite arrays from a stored state are a valid carry; by default those of a fresh one's shapes."""
        fresh = self.initial_carry()
        return fresh is None or shapes_of(fresh) == shapes_of(carry)


@dataclass(frozen=True)
class WithoutVisits(Baseline):
    """Base class of the baselines that read no past visits, so that none are kept."""

    @property
    def horizon(self) -> float:
        return 0.0


@dataclass(frozen=True)
class OwnRewardOptional(WithoutVisits):
    """Base class of the baselines of a group or a step, with or without the completion's own reward in it."""

    without_own: bool = False

    @property
    def alone(self) -> str:
        return "its reward, without a baseline" if self.without_own else "0"

    def leave_one_out(self) -> Self:
        return replace(self, without_own=True)


def shapes_of(carry: dict[str, np.ndarray] | None) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a carry's arrays; empty for None."""
    return {name: array.shape for name, array in (carry or {}).items()}
