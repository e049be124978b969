"""The two array containers that every estimator reads: the current groups and the past visits.

Shapes
------
``...`` are leading axes (replicates, training steps of a whole log), ``P`` prompts of the step,
``G`` completions of a prompt, ``V`` past visits of a prompt. Leading axes broadcast.

Every averaging estimator is written in terms of a *mass* and the rewards it carries: the mass of a completion is
its weight, or one. So the variance-optimal form (Greensmith et al., 2004: smooth ``sum W Z`` over ``sum W``) and the
plain form (smooth rewards over counts) are the same code.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

BLOCK_NUMBERS = 131_072  # in an array several of which fit the processor's cache
Array = Any  # a NumPy array or a torch tensor; the array API standard has no common base class
Namespace = Any  # the functions on them; the standard has no type for it either
# NumPy follows the array API from 2.1 on; the wrapper for earlier ones takes longer to import than NumPy itself.
NUMPY: Namespace = np if hasattr(np, "__array_namespace_info__") else import_module("array_api_compat.numpy")


@dataclass(frozen=True, eq=False)
class Groups:
    """The completions of one training step, one row per prompt.

    Attributes
    ----------
    reward : array, shape (..., P, G)
        Rewards, floating point. Entries outside ``mask`` may be any finite number.
    mask : boolean array, shape (..., P, G), optional
        True where there is a completion. None means that all groups are full.
    weight : array, shape (..., P, G), optional
        Non-negative weight of each completion, for the variance-optimal forms. None means one.
    prompt_ids : sequence of hashables, length P, optional
        Id of each row; needed only by baselines that look prompts up (`Oracle`, `Remax`).
    divergence : array, shape (..., P), optional
        Policy divergence since the prompt's previous visit (nats); only `Spo` with an adaptive rate reads it.
    times : array, shape (..., P, G), optional
        How many completions of the prompt an entry stands for, all of the same reward; 0 for padding. This form is
        for rewards with few distinct values (`kaestat.baselines.base.Baseline.counts_suffice`), without mask and
        weights. None means one.
    """

    reward: Array
    mask: Array | None = None
    weight: Array | None = None
    prompt_ids: Sequence[Hashable] | None = None
    divergence: Array | None = None
    times: Array | None = None

    @property
    def xp(self) -> Namespace:
        """The array namespace (NumPy's or torch's) of the rewards."""
        return namespace(self.reward)

    @property
    def present(self) -> Array:
        """Number of completions in each entry: 1 for a completion, 0 in the padding; shape (..., P, G)."""
        if self.times is not None:
            return self.times
        xp = self.xp
        return xp.ones_like(self.reward) if self.mask is None else xp.astype(self.mask, self.reward.dtype)

    @property
    def mass(self) -> Array:
        """Weight of the completions of each entry, zero in the padding; shape (..., P, G)."""
        if self.weight is None:
            return self.present
        return self.weight if self.mask is None else self.weight * self.present

    @property
    def mass_sq(self) -> Array:
        """Squared weights of the completions of each entry, zero in the padding; shape (..., P, G)."""
        return self.mass if self.times is not None else self.mass**2

    @property
    def own_mass(self) -> Array:
        """Weight of a single completion of each entry, zero in the padding; shape (..., P, G)."""
        return self.mass if self.times is None else self.xp.clip(self.times, None, 1.0)

    @property
    def carried(self) -> Array:
        """Mass times reward of each entry, zero in the padding; shape (..., P, G)."""
        if self.times is not None:
            return self.times * self.reward
        if self.weight is None and self.mask is None:
            return self.reward
        xp = self.xp
        carried = self.reward if self.weight is None else self.weight * self.reward
        return carried if self.mask is None else xp.where(self.mask, carried, xp.zeros_like(carried))

    @property
    def count(self) -> Array:
        """Completions per prompt; shape (..., P, 1)."""
        if self.mask is None and self.times is None:
            return self.xp.full_like(self.reward[..., :1], float(self.reward.shape[-1]))
        return self.xp.sum(self.present, axis=-1, keepdims=True)

    def pooled(self, per_prompt: Array) -> Array:
        """Sum over the prompts of the step; (..., P, k) becomes (..., 1, k)."""
        xp = self.xp
        if per_prompt.shape[-1] == 1:  # sums along the last axis are three times as fast
            return xp.sum(per_prompt[..., 0], axis=-1)[..., None, None]
        return xp.sum(per_prompt, axis=-2, keepdims=True)

    def pooled_others(self, per_prompt: Array) -> Array:
        """Sum over the other prompts of the step, for each prompt; the shape (..., P, k) is kept."""
        return self.pooled(per_prompt) - per_prompt

    def others(self) -> tuple[Array, Array]:
        """Mass and carried reward of the *other* completions of the same prompt; both broadcast to (..., P, G)."""
        xp = self.xp
        if self.mask is None and self.weight is None and self.times is None:
            others = xp.full_like(self.reward[..., :1, :1], self.reward.shape[-1] - 1.0)
            return others, xp.sum(self.reward, axis=-1, keepdims=True) - self.reward
        if self.times is not None:
            total = xp.vecdot(self.reward, self.times)[..., None]
            return xp.clip(self.count - 1, 0.0, None), total - self.reward
        total = xp.sum(self.carried, axis=-1, keepdims=True)
        mass = xp.sum(self.mass, axis=-1, keepdims=True) - self.mass
        return _clear_rounding(mass, self.mass, xp), total - self.carried

    def other_prompts(self) -> tuple[Array, Array]:
        """Mass and carried reward of the other prompts of the step; both (..., P, 1)."""
        xp = self.xp
        mass = xp.sum(self.mass, axis=-1, keepdims=True)
        carried = xp.sum(self.carried, axis=-1, keepdims=True)
        return _clear_rounding(self.pooled_others(mass), mass, xp), self.pooled_others(carried)


@dataclass(frozen=True, eq=False)
class Visits:
    """Sufficient statistics of each prompt's past visits; a visit is one step at which the prompt was sampled.

    Visits are in the order of time, oldest first. Padding (``count == 0``, all totals 0) may be anywhere.

    Attributes
    ----------
    lag : array, shape (..., P, V) or (..., 1, V)
        Current step minus the visit's step; at least 1 for a visit, any finite number in the padding. One row serves
        prompts that were visited together.
    count, total, total_sq : array, shape (..., P, V)
        Number of completions, sum of their rewards and of the squared rewards.
    weight, weight_sq, weighted_total, weighted_total_sq : array, shape (..., P, V), optional
        The same sums with completions weighted: ``sum W``, ``sum W^2``, ``sum W Z``, ``sum W Z^2``.
    weight_sq_total, weight_sq_total_sq : array, shape (..., P, V), optional
        ``sum W^2 Z`` and ``sum W^2 Z^2``.
    divergence : array, shape (..., P, V), optional
        Policy divergence between this visit and the prompt's visit before it (nats).
    state : array, shape (..., P, S), optional
        What the baseline kept of each prompt after its newest visit (`kaestat.baselines.base.Baseline.state_size`);
        meaningless for a prompt without visits.
    """

    lag: Array
    count: Array
    total: Array
    total_sq: Array
    weight: Array | None = None
    weight_sq: Array | None = None
    weighted_total: Array | None = None
    weighted_total_sq: Array | None = None
    weight_sq_total: Array | None = None
    weight_sq_total_sq: Array | None = None
    divergence: Array | None = None
    state: Array | None = None

    @property
    def mass(self) -> Array:
        """Sum of the weights, or the count; shape (..., P, V)."""
        return self.count if self.weight is None else self.weight

    @property
    def mass_sq(self) -> Array:
        """Sum of the squared weights, or the count; shape (..., P, V)."""
        return self.count if self.weight_sq is None else self.weight_sq

    @property
    def carried(self) -> Array:
        """Sum of weight times reward; shape (..., P, V)."""
        return self.total if self.weighted_total is None else self.weighted_total

    @property
    def carried_sq(self) -> Array:
        """Sum of weight times squared reward; shape (..., P, V)."""
        return self.total_sq if self.weighted_total_sq is None else self.weighted_total_sq

    @property
    def mass_sq_carried(self) -> Array:
        """Sum of squared weight times reward; shape (..., P, V)."""
        return self.carried if self.weight_sq_total is None else self.weight_sq_total

    @property
    def mass_sq_carried_sq(self) -> Array:
        """Sum of squared weight times squared reward; shape (..., P, V)."""
        return self.carried_sq if self.weight_sq_total_sq is None else self.weight_sq_total_sq

    @classmethod
    def of(cls, lag: Array, reward: Array, weight: Array | None = None) -> Visits:
        """The visits of given completions.

        Parameters
        ----------
        lag : array broadcastable to (..., P, V)
        reward : array, shape (..., P, V, G)
            Rewards of each visit's completions; all visits have the same number.
        weight : array broadcastable to (..., P, V, G), optional
            Non-negative weights of the completions.
        """
        xp, whole = namespace(reward), None if weight is None else weight + 0 * reward
        sums = visit_sums(Groups(reward, weight=whole))
        return cls(lag=xp.asarray(lag, dtype=reward.dtype) + xp.zeros_like(sums["total"]), **sums)

    @classmethod
    def of_successes(cls, lag: Array, successes: Array, count: Array | float) -> Visits:
        """Visits with rewards of 0 and 1 only, so that sums of rewards and of their squares are equal.

        Parameters
        ----------
        lag : array broadcastable to (..., P, V)
        successes : array, shape (..., P, V)
            Number of rewards 1 of each visit, floating point.
        count : array broadcastable to (..., P, V), or float
            Number of completions of each visit.
        """
        xp = namespace(successes)
        none = xp.zeros_like(successes)
        lag = xp.asarray(lag, dtype=successes.dtype) + none
        return cls(lag=lag, count=count + none, total=successes, total_sq=successes)

    @classmethod
    def empty(cls, groups: Groups) -> Visits:
        """An empty past, in the shape and type and on the device that fit ``groups``."""
        none = groups.reward[..., :0]
        return cls(lag=none, count=none, total=none, total_sq=none)


def visit_sums(groups: Groups) -> dict[str, Array]:
    """The sums over each row's completions that a history keeps of a visit, shape (..., P) each."""
    xp, reward = groups.xp, groups.reward if groups.mask is None else groups.xp.where(groups.mask, groups.reward, 0.0)
    terms = {"total": reward, "total_sq": reward * reward}
    if groups.weight is not None:
        mass, carried = groups.mass, groups.carried
        terms |= {"weight": mass, "weight_sq": mass**2}
        terms |= {"weighted_total": carried, "weighted_total_sq": carried * reward}
        terms |= {"weight_sq_total": mass * carried, "weight_sq_total_sq": carried**2}
    sums = {"count": groups.count[..., 0]} | {name: xp.sum(term, axis=-1) for name, term in terms.items()}
    return sums if groups.divergence is None else sums | {"divergence": groups.divergence}


def namespace(array: Array) -> Namespace:
    """The array namespace; `array_api_compat.array_namespace` is slow on NumPy arrays compared with a small formula."""
    return NUMPY if type(array) is np.ndarray or isinstance(array, np.generic) else array_namespace(array)


def as_like(value: Any, model: Array) -> Array:
    """``value`` as an array of the model's kind and floating type, on its device."""
    if type(model) is np.ndarray:
        return np.asarray(value, dtype=model.dtype)
    return namespace(model).asarray(value, dtype=model.dtype, device=device(model))


def log_beta(a: Array, b: Array) -> Array:
    """Logarithm of the Beta function."""
    from scipy.special import gammaln

    log_gamma = gammaln if namespace(a) is NUMPY else namespace(a).lgamma
    return log_gamma(a) + log_gamma(b) - log_gamma(a + b)


def ratio(numerator: Array, denominator: Array, otherwise: Array | float, xp: Namespace) -> Array:
    """``numerator / denominator`` where the denominator is positive, ``otherwise`` elsewhere; never warns."""
    positive = denominator > 0
    return xp.where(positive, numerator / xp.where(positive, denominator, 1.0), otherwise)


def not_negative(array: Array) -> Array:
    """The array with its negative entries set to 0."""
    return namespace(array).clip(array, 0.0, None)


def _clear_rounding(remaining: Array, removed: Array, xp: Namespace) -> Array:
    """Zero where subtracting a mass from its own sum left only rounding error (else 1e-17 would be divided by)."""
    tiny = 1e-12 * (xp.abs(remaining) + removed)
    return xp.where(remaining > tiny, remaining, xp.zeros_like(remaining))


def check_shapes(**arrays: Any) -> None:
    """Raise a ValueError that names the arrays if their shapes do not broadcast or one is empty."""
    try:
        whole = np.broadcast_shapes(*(np.shape(array) for array in arrays.values()))
    except ValueError:
        whole = (0,)
    if 0 in whole:
        shapes = ", ".join(f"{name} {tuple(np.shape(array))}" for name, array in arrays.items())
        raise ValueError(f"shapes do not fit together, or are empty: {shapes}.")
