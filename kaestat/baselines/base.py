"""What every baseline is: a small frozen object whose `values` maps arrays to values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from kaestat.arrays import Array, Groups, Visits


@dataclass(frozen=True)
class Baseline(ABC):
    """A baseline: the value that is subtracted from each completion's reward.

    Class attributes say what a baseline needs, so that `AdvantageEstimator` and `value_risk` can serve it:

    Attributes
    ----------
    unit : {"prompt", "group"}
        What a row is: all completions of a prompt at a step, or each of its groups (streams) on its own.
    takes_weights : bool
        Whether completions may carry weights (averaging baselines).
    stepwise : bool
        Whether steps must be served one at a time and in order, because of a carry or of prompts to look up.
    """

    unit: ClassVar[Literal["prompt", "group"]] = "prompt"
    takes_weights: ClassVar[bool] = False
    stepwise: ClassVar[bool] = False

    @abstractmethod
    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        """Value assigned to each completion.

        Parameters
        ----------
        groups : Groups
            Rewards of the current step, shape (..., P, G).
        visits : Visits
            Past visits of the same prompts, shape (..., P, V).
        step : int, or array broadcastable to (..., 1, 1)
            Current training step, 0-based.
        carry : optional
            State beyond the visits as of before this step (see `initial_carry`); None means a fresh start.

        Returns
        -------
        array, shape (..., P, G)
            Finite everywhere; entries outside the mask mean nothing.
        """

    @property
    def horizon(self) -> float:
        """Largest lag (steps) whose visit can matter: 0 for memoryless baselines, ``inf`` for unbounded ones."""
        return 0.0

    @property
    def pools_prompts(self) -> bool:
        """Whether the value of a prompt with a past in reach can depend on the rewards of *other* prompts.

        Errors of different prompts are not independent then, and `value_risk` has its standard errors from replaying
        the log again without groups of prompts. Falling back on the other prompts where nothing is known of a prompt
        (a cold start) does not count.
        """
        return False

    @property
    def takes_divergence(self) -> bool:
        """Whether the policy divergence between visits enters the value."""
        return False

    @property
    def needs(self) -> str:
        """Plain words for an input beyond rewards that is still missing; empty if the baseline is ready."""
        return ""

    def own_weight(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array | float:
        """Derivative of a completion's value in its own reward, broadcastable to (..., P, G).

        Zero for leave-one-out baselines, whose gradient is therefore unbiased.
        """
        return 0.0

    def deviation(self, groups: Groups, visits: Visits, *, step: int | Array) -> Array | None:
        """A scale that belongs to the method itself (Kalman gain of `Krpo`); None for the rest."""
        return None

    def initial_carry(self) -> Any:
        """Arrays (a dict of NumPy arrays) that must survive between steps beyond the visits; None if there are none."""
        return None

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> Any:
        """The carry after this step."""
        return carry

    def accepts_carry(self, carry: dict[str, np.ndarray] | None) -> bool:
        """Whether finite arrays, read from a stored state, can be a carry of this baseline.

        By default they must have the names and shapes of `initial_carry`, if there is one.
        """
        fresh = self.initial_carry()
        return fresh is None or _shapes(fresh) == _shapes(carry or {})

    def leave_one_out(self) -> Baseline:
        """The same baseline without the completion's own reward, as the paper's Table 1 compares them."""
        return self


SMALLEST, LARGEST = 1e-140, 1e140  # products and ratios of two parameters, and of one with a lag, do not overflow


def check_positive(name: str, value: Any, *, allow_inf: bool = False, allow_zero: bool = False) -> float:
    """Return ``value`` as a float, or raise a ValueError that names it."""
    kind = ("non-negative" if allow_zero else "positive") + ("" if allow_inf else " and finite")
    number = check_number(name, value, f"a {kind} number")
    in_range = number >= 0 if allow_zero else number > 0
    if not in_range or (math.isinf(number) and not allow_inf):
        raise ValueError(f"{name} must be {kind}, got {value!r}.")
    _check_size(name, number, 0 if allow_zero else SMALLEST)
    return number


def check_number(name: str, value: Any, wanted: str = "a number") -> float:
    """Return ``value`` as a float, NaN and infinities included, or raise a TypeError that names it."""
    # Fractions and decimals are refused: arrays times these are arrays of objects. Text, complex numbers and truth
    # values in arrays would become numbers; types go by their names, which array libraries share.
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    is_scalar = getattr(value, "ndim", None) == 0 and dtype.startswith(("int", "uint", "float", "bfloat"))
    if isinstance(value, bool) or not (isinstance(value, int | float) or is_scalar):
        raise TypeError(f"{name} must be {wanted}, got {value!r}.")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must be {wanted}: {error}.") from error


def check_finite_number(name: str, value: Any) -> float:
    """Return ``value`` as a finite float, or raise an error that names it."""
    number = check_number(name, value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {value!r}.")
    _check_size(name, number, 0)
    return number


def check_share(name: str, value: Any, *, allow_zero: bool = False) -> float:
    """Return ``value`` as a float in (0, 1] (or [0, 1]), or raise an error that names it."""
    number = check_number(name, value)
    if not (0 < number <= 1 or (allow_zero and number == 0)):
        raise ValueError(f"{name} must lie in {'[' if allow_zero else '('}0, 1], got {value!r}.")
    return number


def _shapes(carry: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in carry.items()}


def _check_size(name: str, number: float, smallest: float) -> None:
    if math.isfinite(number) and not smallest <= abs(number) <= LARGEST:
        raise ValueError(f"{name} must be between {smallest:g} and {LARGEST:g} in size, got {number!r}.")
