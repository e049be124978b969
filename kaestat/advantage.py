"""From rewards to advantages, step by step: the stateful object that a training loop holds."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kaestat import specification
from kaestat.arrays import Array, Groups, Visits
from kaestat.baselines.base import Baseline
from kaestat.checks import check_ids
from kaestat.estimator_state import EstimatorState
from kaestat.history import RewardHistory, visit_sums, whole_step
from kaestat.prediction import Prediction, predict
from kaestat.reach import ReturnWatch
from kaestat.record import StepRecord
from kaestat.registry import FIXED_PARAMETERS, changed_parameters, get_method, make_baseline, with_specified
from kaestat.samples import Packing, StepSamples, largest_like, like, scatter
from kaestat.scaling import DEVIATION, SCALINGS
from kaestat.storage import load_state, pack_arrays, save_state, unpack_arrays


class AdvantageEstimator:
    """Advantages ``reward - value`` for the samples of each training step, with the history kept inside.

    Parameters
    ----------
    method : str or Baseline
        One of `kaestat.methods()`, or a specification with parameters such as ``"kae:bandwidth=10"``, as
        `kaestat.value_risk` takes; or a baseline object, whose own scaling is none.
    scale : {"none", "group_std", "batch_std", "informative"}, optional
        Overrides the method's own scaling: none; division by the group's standard deviation; whitening over the
        batch. None keeps the published one (`kaestat.registry.METHODS`).
    **params
        Parameters of the baseline, for example ``kernel="triangular", bandwidth=10.0`` for ``"kae"``.

    Attributes
    ----------
    values : array, shape (N,)
        Values of the samples of the last step, in their order and array type; 0 where masked.
    record : StepRecord or None
        What the last step did, for metrics; None before the first, after a step without samples, and after loading.

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
            self.method, self.baseline, own_scale = type(method).__name__, method, "none"
        else:
            method, params = with_specified(method, params)
            known = get_method(method)
            self.method, self.baseline = method, make_baseline(method, **params)
            own_scale = known.scale
        if scale is not None and not (isinstance(scale, str) and scale in SCALINGS):
            raise ValueError(
                f"scale: unknown {scale!r}; choose one of {', '.join(SCALINGS)}, or None for the method's own."
            )
        if self.baseline.missing_input is not None:
            raise ValueError(f"method {self.method!r} needs {self.baseline.missing_input}.")
        self._named, self._params, self._scale = isinstance(method, str), params, scale
        self.scale = own_scale if scale is None else scale
        self.values: Array | None = None
        self.record: StepRecord | None = None
        self._state = EstimatorState(self.baseline.initial_carry())
        self._returns = ReturnWatch(self.method, self.baseline)

    def __repr__(self) -> str:
        given = [repr(self.method if self._named else self.baseline)]
        given += [f"{name}={value!r}" for name, value in changed_parameters(self.baseline, self._params).items()]
        given += [] if self._scale is None else [f"scale={self._scale!r}"]
        when = "before its first step" if self.last_step < 0 else f"after step {self.last_step}"
        known = "" if self.history is None else f", {len(self.history):,} prompts known"
        return f"AdvantageEstimator({', '.join(given)}) {when}{known}"

    @property
    def last_step(self) -> int:
        """The last step recorded; -1 before the first."""
        return self._state.last_step

    @property
    def history(self) -> RewardHistory | None:
        """The record of past visits; None before the first step, and for memoryless methods."""
        return self._state.history

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
            False for padding: such samples get advantage 0 and are not recorded, whatever their reward, id or weight.
        stream_ids : sequence of hashables, length N, optional
            Splits a prompt's samples into groups. Group baselines (grpo, rloo, james_stein, ...) compare within
            a group; ``kae_stream`` keeps one history per (prompt, stream), so there the ids must be stable from step to
            step (the copy's position in the batch, not a random uid) and given at every step or at none; all others
            pool the prompt. None makes all samples of a prompt one group.
        weights : array of float, shape (N,), optional
            Non-negative weight of each completion (its squared score norm, or a proxy): averaging baselines
            become variance-optimal ones. Methods with a history want it at every step or at none.
        divergence : array of float, shape (N,), optional
            Policy divergence since the prompt's last visit (nats), the same for all its samples; only for
            adaptive ``spo``, at every step or at none.

        Returns
        -------
        array, shape (N,)
            Same array type, device, floating type and order as ``rewards``. NumPy for sequences and pandas Series;
            float64 for NumPy integers and Booleans, torch's default type for its integers.

        Raises
        ------
        ValueError
            For rewards that are not finite, mismatched lengths, missing ids, a step that goes backwards, a prompt
            recorded twice at one step, or negative weights. The state is then unchanged.
        TypeError
            For unhashable ids, or rewards that are no numbers.

        Warns
        -----
        UserWarning
            If a method with a history has not seen a single prompt come back in 100 steps, or nearly all that came
            back did so after more steps than the history reaches.
        """
        step, by_stream = whole_step(step), self.baseline.unit == "group"
        samples = StepSamples.of(prompt_ids, rewards, mask, stream_ids, weights, divergence, by_stream=by_stream)
        advantages, values = self._advance(samples, step, largest_like(rewards))
        self.values = like(scatter(values, samples.keep), rewards)
        return like(scatter(advantages, samples.keep), rewards)

    def observe(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[float],
        step: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
        divergence: Array | Sequence[float] | None = None,
    ) -> None:
        """Record completions that get no advantage, such as those of groups that a trainer's filter drops.

        A history that sees only what a filter lets through is one of mixed groups, and its values are pulled towards
        1/2: whatever was sampled and scored belongs into it. `values` and `record` stay those of the last `step`.

        Parameters
        ----------
        prompt_ids, rewards, step, mask, stream_ids, weights, divergence
            As in `step`. Calls of `step` and `observe` with the same step may come in any order; a prompt comes in one
            of them.

        Raises
        ------
        ValueError, TypeError
            As `step`.
        """
        step, by_stream, record = whole_step(step), self.baseline.unit == "group", self.record
        samples = StepSamples.of(prompt_ids, rewards, mask, stream_ids, weights, divergence, by_stream=by_stream)
        self._advance(samples, step, largest_like(rewards))
        self.record = record

    def predict(self, prompt_ids: Sequence[Hashable], step: int) -> Prediction:
        """Values of prompts before they are sampled; nothing is recorded.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length P
            Distinct prompts, known or not; pairs of prompt and stream for ``kae_stream`` with stream ids. Methods that
            pool prompts borrow from the others that are asked for.
        step : int
            The step at which the prompts would be sampled, after their last visits.

        Returns
        -------
        Prediction
            Arrays of shape (P,), in the order of the ids. Always of the expected reward, also where completions are
            weighted.

        Raises
        ------
        ValueError
            If the method has no history, an id comes twice, or a prompt was visited at ``step`` or later.
        TypeError
            For unhashable ids.

        Examples
        --------
        >>> estimator = AdvantageEstimator("kae", bandwidth=10)
        >>> _ = estimator.step(["a"] * 4 + ["b"] * 4, [1.0, 0, 0, 0, 1, 1, 1, 0], step=0)
        >>> prediction = estimator.predict(["b", "a", "new"], step=1)
        >>> prediction.value.tolist(), prediction.standard_error.round(2).tolist()
        ([0.75, 0.25, 0.5], [0.22, 0.22, 0.25])
        """
        if self.baseline.horizon == 0:
            raise ValueError(
                f"method {self.method!r} keeps no history, so it predicts nothing; take one that does, such as "
                "'kae_eb'."
            )
        listed = prompt_ids.tolist() if isinstance(prompt_ids, np.ndarray) else prompt_ids
        keys, step = check_ids("prompt_ids", listed), whole_step(step)
        if len(set(keys)) < len(keys):
            twice = next(key for key, times in Counter(keys).items() if times > 1)
            raise ValueError(f"prompt_ids: {twice!r} comes twice; ask for each prompt once.")
        return predict(self.baseline, self.history, self._state.carry, keys, step)

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data (arrays as bytes), for a trainer's checkpoint.

        It survives pickle and ``torch.save`` with ``torch.load(weights_only=True)``.
        """
        return self.state_snapshot()()

    def state_snapshot(self) -> Callable[[], dict[str, Any]]:
        """`state_dict` as of now, for when it is called: a step then pays for a copy of the arrays alone."""
        plain = self._state.snapshot(self.method)
        return lambda: pack_arrays(plain())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state from `state_dict`; the estimator must have been built with the same method.

        Raises
        ------
        ValueError
            If the state belongs to another method or does not fit together. The estimator is then unchanged.
        """
        self._take(unpack_arrays(state))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write method, parameters and state to one file, atomically and without pickle.

        Raises
        ------
        TypeError
            If a parameter (a kernel function of your own) or a prompt id cannot be stored.
        """
        params = self._params
        if self._named and self.method in FIXED_PARAMETERS:
            params = {"bandwidth": "auto"} | params  # told, since files that do not were written with another default
        plan = {
            "method": self.method if self._named else specification.dump(self.baseline),
            "scale": self._scale,
            "params": {name: specification.dump(value) for name, value in params.items()},
        }
        save_state(path, {"estimator": plan, "state": self._state.plain(self.method)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AdvantageEstimator:
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
        try:
            params = {name: specification.load(value) for name, value in plan["params"].items()}
            method = specification.load(plan["method"])
            if isinstance(method, str):
                params = dict(FIXED_PARAMETERS.get(method, {})) | params
            estimator = cls(method, scale=plan["scale"], **params)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path}: its estimator cannot be built ({error}).") from error
        estimator._take(content.get("state"))
        return estimator

    def _take(self, state: Any) -> None:
        self._state = EstimatorState.of(state, self.method, self.baseline)
        self.values, self.record, self._returns = None, None, ReturnWatch(self.method, self.baseline)

    def _check(self, step: int, samples: StepSamples) -> None:
        if step < self.last_step:
            raise ValueError(
                f"step went backwards: got {step} after {self.last_step}. To resume or replay from step {step}, load "
                "the state that was saved before it."
            )
        if samples.weight is not None and not self.baseline.takes_weights:
            raise ValueError(f"weights: method {self.method!r} does not average rewards, so it takes none.")
        if samples.divergence is not None and not self.baseline.takes_divergence:
            raise ValueError(f"divergence: method {self.method!r} makes no use of it; only spo without rho= does.")
        if self.history is None:
            return
        if self.history.weighted != (samples.weight is not None):
            raise ValueError("weights must be given at every step or at none: the history has been kept the other way.")
        if self.history.with_divergence != (samples.divergence is not None):
            raise ValueError("divergence must be given at every step or at none.")
        if self.baseline.unit == "group" and self._state.with_streams != samples.with_streams:
            raise ValueError("stream_ids must be given at every step or at none: histories are kept by them.")

    def _advance(self, samples: StepSamples, step: int, largest: float) -> tuple[np.ndarray, np.ndarray]:
        """Advantages and values in sample order; the state changes only once both are there."""
        self._check(step, samples)
        state, divergence = self._state, samples.divergence
        if not samples.rows.keys:
            self._state, self.record = replace(state, last_step=step), None
            return np.zeros(0), np.zeros(0)
        packing = Packing.of(samples.rows)
        groups = Groups(
            reward=packing.pack(samples.reward),
            mask=packing.mask,
            weight=None if samples.weight is None else packing.pack(samples.weight),
            prompt_ids=packing.keys,
            divergence=None if divergence is None else packing.one_per_row("divergence", divergence),
        )
        history, rows, visits = self._look_back(groups, packing.keys, step)
        with np.errstate(over="ignore", invalid="ignore"):  # the results are tested: what is not finite is refused
            served = self.baseline.serve(groups, visits, step=step, carry=state.carry)
            packed_values, carry = served.values, served.carry
            if packed_values.shape != groups.reward.shape:
                raise ValueError(
                    f"method {self.method!r}: values have shape {packed_values.shape}, rewards {groups.reward.shape}."
                )
            packed_advantages = self._scaled(groups.reward - packed_values, groups, visits, step)
            advantages, values = packing.unpack(packed_advantages), packing.unpack(packed_values)
            sums = {} if history is None else visit_sums(groups)
        kept = (*sums.values(), *(() if carry is None else carry.values()))
        in_range = all((np.abs(numbers) <= largest).all() for numbers in (advantages, values))
        if not in_range or not all(np.isfinite(column).all() for column in kept):
            raise ValueError(f"rewards: method {self.method!r} gives numbers that are not finite; rewards too large?")

        recorded = state.recorded
        if history is not None:
            self._watch_returns(visits)
            history.append(packing.keys, rows, step, sums, served.state)
        elif carry is not None:
            recorded = (recorded if step == state.last_step else {}) | dict.fromkeys(packing.keys)
        self.record = StepRecord(
            step, served.settled, packing, groups, visits, state.carry, packed_values, packed_advantages
        )
        kept_apart = state.with_streams if history is None else samples.with_streams
        self._state = EstimatorState(carry, history, step, recorded, kept_apart)
        return advantages, values

    def _look_back(
        self, groups: Groups, keys: list[Hashable], step: int
    ) -> tuple[RewardHistory | None, np.ndarray, Visits]:
        """The history (new at the first step, None for methods without), the prompts' rows in it, and their visits."""
        history, recorded = self.history, self._state.recorded
        if self.baseline.horizon == 0:
            again = [key for key in keys if key in recorded] if step == self.last_step else []
            if again:
                raise ValueError(
                    f"prompt {again[0]!r} was already recorded at step {step}: its rewards would count twice."
                )
            return None, np.zeros(0, dtype=np.intp), Visits.empty(groups)
        if history is None:
            history = RewardHistory(
                self.baseline.horizon,
                weighted=groups.weight is not None,
                with_divergence=groups.divergence is not None,
                max_visits=self.baseline.max_visits,
                state_size=self.baseline.state_size,
            )
        rows = history.rows(keys)
        history.check_new(keys, rows, step)
        return history, rows, history.visits_of_rows(rows, step)

    def _watch_returns(self, visits: Visits) -> None:
        useless = self._returns.see(visits)
        if useless is not None:
            warnings.warn(useless, stacklevel=4)

    def _scaled(self, advantages: np.ndarray, groups: Groups, visits: Visits, step: int) -> np.ndarray:
        if self.scale == DEVIATION:
            return advantages / self.baseline.deviation(groups, visits, step=step)
        return SCALINGS[self.scale](advantages, groups)
