"""From rewards to advantages, step by step: the stateful object that a training loop holds."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from typing import Any

import array_api_compat
import numpy as np

from kaestat import spec
from kaestat.arrays import Array, Groups, Visits
from kaestat.baselines.base import Baseline
from kaestat.history import MAX_STEP, RewardHistory
from kaestat.registry import METHODS, SCALES, get_method, make_baseline
from kaestat.packing import Packing
from kaestat.scaling import divide_by_group_std, rescale_informative, whiten_over_batch
from kaestat.storage import load_state, save_state

_FLOATS = {np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)}


class AdvantageEstimator:
    """Advantages ``reward - value`` for the samples of each training step, with the history kept inside.

    Parameters
    ----------
    method : str or Baseline
        One of `kaestat.methods()`, or a baseline of your own.
    scale : {"none", "group_std", "batch_std"}, optional
        Overrides the method's own scaling: none; division by the group's standard deviation; whitening over the
        batch. None keeps the published one (`kaestat.registry.METHODS`).
    **params
        Parameters of the baseline, for example ``kernel="triangular", bandwidth=10.0`` for ``"kae"``.

    Attributes
    ----------
    values : array, shape (N,)
        Values of the samples of the last step, in their order and array type; 0 where masked.

    Raises
    ------
    ValueError
        If the method, a parameter or the scale is unknown, or a parameter out of range.

    Examples
    --------
    >>> estimator = AdvantageEstimator("kae", bandwidth=10)
    >>> estimator.step(["a", "a", "b", "b"], [1.0, 0.0, 1.0, 1.0], step=0).tolist()
    [1.0, -1.0, 0.0, 0.0]
    >>> estimator.step(["a", "a"], [1.0, 0.0], step=1).round(3).tolist()
    [0.679, -0.679]
    """

    def __init__(self, method: str | Baseline = "kae", *, scale: str | None = None, **params: Any):
        if isinstance(method, Baseline):
            if params:
                raise ValueError(f"{', '.join(params)}: a Baseline object has its parameters already; leave them out.")
            self.method, self.baseline, own_scale, self._informative = type(method).__name__, method, "none", False
        else:
            known = get_method(method)
            self.method, self.baseline = method, make_baseline(method, **params)
            own_scale, self._informative = known.scale, known.rescales_informative
        if scale is not None and scale not in SCALES:
            raise ValueError(
                f"scale: unknown {scale!r}; choose one of {', '.join(SCALES)}, or None for the method's own."
            )
        if self.baseline.needs:
            raise ValueError(f"method {self.method!r} needs {self.baseline.needs}.")
        self._params, self._scale = params, scale
        self.scale = own_scale if scale is None else scale
        self.values: Array | None = None
        self._history: RewardHistory | None = None
        self._carry = self.baseline.initial_carry()
        self._last_step = -1

    @property
    def history(self) -> RewardHistory | None:
        """The record of past visits; None before the first step, and for memoryless methods."""
        return self._history

    def step(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[float],
        step: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
        divergence: Array | Sequence[float] | None = None,
    ) -> Array:
        """Advantages of the samples of one training step; records them as the past of later steps.

        Samples may stand in any order, groups may be ragged, and a prompt may have several groups.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length N
            The prompt of each sample; the same id must mean the same prompt at every step.
        rewards : array or sequence of float, shape (N,)
            NumPy array, torch tensor (any device) or a sequence.
        step : int
            Training step, 0-based; never smaller than the last one. Different prompts may come in several calls with
            the same step, but a prompt only once.
        mask : array of bool, shape (N,), optional
            False for padding: such samples get advantage 0 and are not recorded.
        stream_ids : sequence of hashables, length N, optional
            Splits a prompt's samples into groups. Group baselines (grpo, rloo, james_stein, ...) compare within
            a group; ``kae_stream`` keeps one history per (prompt, stream), so there the ids must be stable from step to
            step; all others pool the prompt. None makes all samples of a prompt one group.
        weights : array of float, shape (N,), optional
            Non-negative weight of each completion (its squared score norm, or a proxy): averaging baselines
            become variance-optimal ones. Give it at every step or at none.
        divergence : array of float, shape (N,), optional
            Policy divergence since the prompt's last visit, the same for all its samples; only for adaptive ``spo``.

        Returns
        -------
        array, shape (N,)
            Same type, device, floating type and order as ``rewards`` (float64 NumPy for sequences and integers).

        Raises
        ------
        ValueError
            For rewards that are not finite, mismatched lengths, missing ids, a step that goes backwards, a prompt
            recorded twice at one step, or negative weights. The state is then unchanged.
        TypeError
            For unhashable ids, or rewards that are no numbers.
        """
        step = _whole_step(step)
        reward = _numbers("rewards", rewards)
        size = len(reward)
        keys = self._keys(_ids("prompt_ids", prompt_ids, size), stream_ids, size)
        weight = None if weights is None else _numbers("weights", weights, size)
        drift = None if divergence is None else _numbers("divergence", divergence, size)
        keep = None if mask is None else _mask(mask, size)
        self._check(step, weight, drift)
        if keep is not None and not keep.all():
            keys = [key for key, kept in zip(keys, keep.tolist(), strict=True) if kept]
            reward, weight, drift = (None if a is None else a[keep] for a in (reward, weight, drift))
        else:
            keep = None
        if not np.isfinite(reward).all():
            raise ValueError(f"rewards must be finite: {_first_bad(reward)}. Mask samples without a reward.")
        if weight is not None and not (np.isfinite(weight).all() and (weight >= 0).all()):
            raise ValueError("weights must be finite and non-negative.")

        advantages, values = self._advance(keys, reward, weight, drift, step)
        if keep is not None:
            advantages, values = _scatter(advantages, keep), _scatter(values, keep)
        self.values = _like(values, rewards)
        return _like(advantages, rewards)

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data and NumPy arrays, for a trainer's checkpoint."""
        return {
            "method": self.method,
            "last_step": self._last_step,
            "carry": None if self._carry is None else {name: np.array(a) for name, a in self._carry.items()},
            "history": None if self._history is None else self._history.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state from `state_dict`; the estimator must have been built with the same method.

        Raises
        ------
        ValueError
            If the state belongs to another method or does not fit together. The estimator is then unchanged.
        """
        if not isinstance(state, dict) or not {"method", "last_step", "carry", "history"} <= set(state):
            raise ValueError("state: not a state_dict of an AdvantageEstimator.")
        if state["method"] != self.method:
            raise ValueError(f"state: saved by method {state['method']!r}, this estimator is {self.method!r}.")
        history = None if state["history"] is None else RewardHistory.from_state_dict(state["history"])
        if history is not None and history.horizon != self.baseline.horizon:
            raise ValueError(
                f"state: its history reaches {history.horizon:g} steps back, this estimator needs "
                f"{self.baseline.horizon:g}; build it with the parameters that were saved."
            )
        self._carry = None if state["carry"] is None else {name: np.array(a) for name, a in state["carry"].items()}
        self._history = history
        self._last_step = int(state["last_step"])
        self.values = None

    def save(self, path: str | os.PathLike) -> None:
        """Write method, parameters and state to one file, atomically and without pickle.

        Raises
        ------
        TypeError
            If a parameter (a kernel function of your own) or a prompt id cannot be stored.
        """
        plan = {
            "method": spec.dump(self.baseline) if self.method not in METHODS else self.method,
            "scale": self._scale,
            "params": {name: spec.dump(value) for name, value in self._params.items()},
        }
        save_state(path, {"estimator": plan, "state": self.state_dict()})

    @classmethod
    def load(cls, path: str | os.PathLike) -> AdvantageEstimator:
        """Rebuild an estimator written by `save`; it goes on bit for bit as if it had never stopped.

        Raises
        ------
        ValueError
            If the file is torn, or holds something else.
        """
        content = load_state(path)
        plan = content.get("estimator")
        if not isinstance(plan, dict):
            raise ValueError(f"{path}: holds no AdvantageEstimator.")
        params = {name: spec.load(value) for name, value in plan["params"].items()}
        estimator = cls(spec.load(plan["method"]), scale=plan["scale"], **params)
        estimator.load_state_dict(content["state"])
        return estimator

    def _keys(self, prompts: list, stream_ids: Sequence[Hashable] | None, size: int) -> list:
        if stream_ids is None:
            return prompts
        streams = _ids("stream_ids", stream_ids, size)
        return list(zip(prompts, streams, strict=True)) if self.baseline.unit == "group" else prompts

    def _check(self, step: int, weight: np.ndarray | None, divergence: np.ndarray | None) -> None:
        if step < self._last_step:
            raise ValueError(
                f"step went backwards: got {step} after {self._last_step}. To resume or replay from step {step}, load "
                "the state that was saved before it."
            )
        if weight is not None and not self.baseline.takes_weights:
            raise ValueError(f"weights: method {self.method!r} does not average rewards, so it takes none.")
        if self._history is not None:
            if self._history.weighted != (weight is not None):
                raise ValueError(
                    "weights must be given at every step or at none: the history has been kept the other way."
                )
            if self._history.with_divergence != (divergence is not None):
                raise ValueError("divergence must be given at every step or at none.")

    def _advance(
        self, keys: list, reward: np.ndarray, weight: np.ndarray | None, divergence: np.ndarray | None, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Advantages and values in sample order; the state changes only once both are there."""
        packing = Packing.of(keys)
        groups = Groups(
            reward=packing.pack(reward),
            mask=packing.mask,
            weight=None if weight is None else packing.pack(weight),
            prompt_ids=packing.keys,
            divergence=None if divergence is None else packing.pack(divergence)[:, 0],
        )
        history = self._history
        if history is None and self.baseline.horizon > 0:
            history = RewardHistory(
                self.baseline.horizon, weighted=weight is not None, with_divergence=divergence is not None
            )
        if history is None:
            rows, visits = None, Visits.empty(groups)
        else:
            rows = history.rows(packing.keys)
            history.check_new(packing.keys, rows, step)
            visits = history.visits_of_rows(rows, step)
        if len(packing.keys) > 0:
            values = self.baseline.values(groups, visits, step=step, carry=self._carry)
            advantages = self._scaled(groups.reward - values, groups, visits, step)
            carry = self.baseline.advance(self._carry, groups, visits, step=step)
            if history is not None:
                history.append(packing.keys, rows, step, _sums(groups))
            self._history, self._carry = history, carry
        else:
            values = advantages = groups.reward
        self._last_step = step
        return packing.unpack(advantages), packing.unpack(values)

    def _scaled(self, advantages: np.ndarray, groups: Groups, visits: Visits, step: int) -> np.ndarray:
        if self._informative:
            advantages = rescale_informative(advantages, groups)
        if self.scale == "group_std":
            return divide_by_group_std(advantages, groups)
        if self.scale == "batch_std":
            return whiten_over_batch(advantages, groups)
        if self.scale == "own":
            return advantages / self.baseline.deviation(groups, visits, step=step)
        return advantages


def _sums(groups: Groups) -> dict[str, np.ndarray]:
    """One visit's sufficient statistics of every row."""
    reward = groups.reward
    plain = reward if groups.mask is None else np.where(groups.mask, reward, 0.0)
    sums = {
        "count": np.sum(groups.present, axis=-1),
        "total": np.sum(plain, axis=-1),
        "total_sq": np.einsum("pg,pg->p", plain, plain),
    }
    if groups.weight is not None:
        mass, carried = groups.mass, groups.carried
        sums |= {
            "weight": np.sum(mass, axis=-1),
            "weight_sq": np.einsum("pg,pg->p", mass, mass),
            "weighted_total": np.sum(carried, axis=-1),
            "weighted_total_sq": np.einsum("pg,pg->p", carried, reward),
        }
    if groups.divergence is not None:
        sums["divergence"] = groups.divergence
    return sums


def _whole_step(step: Any) -> int:
    number = step.item() if hasattr(step, "item") else step
    if isinstance(number, bool) or not isinstance(number, int | float) or number != int(number):
        raise TypeError(f"step must be a whole number, got {step!r}.")
    if not 0 <= number <= MAX_STEP:
        raise ValueError(f"step must lie between 0 and {MAX_STEP}, got {step!r}.")
    return int(number)


def _ids(name: str, ids: Any, size: int) -> list:
    if isinstance(ids, str | bytes):
        raise TypeError(f"{name} must be a sequence with one id per sample, got one {type(ids).__name__}.")
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if len(ids) != size:
        raise ValueError(f"{name} has {len(ids)} entries for {size} rewards; give one id per sample.")
    try:
        distinct = set(ids)
    except TypeError as error:
        raise TypeError(
            f"{name} must be hashable ({error}); turn lists into tuples, or hash the prompt text."
        ) from None
    if None in distinct or any(key != key for key in distinct):
        raise ValueError(
            f"{name}: None or NaN is no id. Key prompts by (source, split, index), or by a hash of the prompt text."
        )
    return ids


def _numbers(name: str, values: Any, size: int | None = None) -> np.ndarray:
    """A float64 array of shape (N,) from whatever came, or an error that names it."""
    if array_api_compat.is_torch_array(values):
        values = values.detach().cpu().double().numpy()
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numbers, one per sample ({error}).") from None
    if numbers.ndim != 1:
        raise ValueError(f"{name} must have one axis (one entry per sample), got shape {numbers.shape}.")
    if size is not None and len(numbers) != size:
        raise ValueError(f"{name} has {len(numbers)} entries for {size} rewards; give one per sample.")
    return numbers


def _mask(mask: Any, size: int) -> np.ndarray:
    numbers = _numbers("mask", mask, size)
    if not ((numbers == 0) | (numbers == 1)).all():
        raise ValueError("mask must be boolean (True where there is a sample).")
    return numbers > 0


def _first_bad(reward: np.ndarray) -> str:
    index = int(np.argmax(~np.isfinite(reward)))
    return f"{(~np.isfinite(reward)).sum()} of {len(reward)} are not, the first is {reward[index]} at position {index}"


def _scatter(samples: np.ndarray, keep: np.ndarray) -> np.ndarray:
    scattered = np.zeros(len(keep))
    scattered[keep] = samples
    return scattered


def _like(samples: np.ndarray, template: Any) -> Array:
    """``samples`` in the array type, device and floating type of ``template``."""
    if array_api_compat.is_torch_array(template):
        import torch

        dtype = template.dtype if template.is_floating_point() else torch.get_default_dtype()
        return torch.from_numpy(np.ascontiguousarray(samples)).to(device=template.device, dtype=dtype)
    dtype = getattr(template, "dtype", None)
    return samples.astype(dtype) if dtype in _FLOATS else samples
