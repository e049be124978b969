"""The stateful object in a training loop that turns rewards into advantages, step by step."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.arrays import Array, Visits, visit_sums
from kaestat.core.checks import check_ids, whole_step
from kaestat.core.digits import center_of
from kaestat.core.samples import Samples, as_type_of, is_weighted
from kaestat.estimator.notices import step_warnings
from kaestat.estimator.opening import check_prior, with_history, with_prior
from kaestat.estimator.plan import Plan
from kaestat.estimator.prediction import Prediction, predict
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.step import Batch, StepRecord, compute, group
from kaestat.estimator.stored import StoredEstimator
from kaestat.history.history import RewardHistory
from kaestat.history.prior import Prior, as_prior


class AdvantageEstimator(StoredEstimator):
    """Advantages ``reward - value`` for the samples of each training step, with the history kept inside.

    Steps come in order, and each prompt once per step. For late rewards, completions of several policy versions or
    several calls per step take `kaestat.AsynchronousEstimator`.

    Parameters
    ----------
    method : str or Baseline
        One of `kaestat.methods()`, or a specification with parameters such as ``"kae:bandwidth=10"``, as
        `kaestat.value_risk` takes; or a baseline object, which has no scaling of its own.
    scale : {"none", "group_std", "batch_std", "informative", "trl_group", "trl_batch"}, optional
        Overrides the method's own scaling: none; division by the group's standard deviation; whitening over the
        batch; GPG's; TRL's two. Scalings that divide take an epsilon, as in ``"group_std(epsilon=1e-4)"``. None keeps
        the published one (`kaestat.baselines.registry.METHODS`). Division by the group's deviation goes only with
        methods whose values come from that group alone (`Baseline.within_group`).
    objective : {"mean", "log", "pass@K", "arcsin", "bnpo"}
        The function of each prompt's success rate V to maximise: V itself, its logarithm, the chance of a success in K
        tries (``"pass@8"``), the objective that division by the standard deviation implies, or BNPO's. Advantages are
        multiplied by the objective's slope at the rate of the prompt's past (`kaestat.estimator.objective`), before any
        scaling; only for methods with a history and rewards between 0 and 1.
    prior : Prior, mapping or path, optional
        What is known about prompts before the run: a `kaestat.Prior`, ``{prompt_id: (mean reward, completions)}``, or a
        file for `Prior.read`. See `add_prior`. A loaded state holds its own prior, which replaces this one.
    **params
        Parameters of the baseline, for example ``kernel="triangular", bandwidth=10.0`` for ``"kae"``.

    Attributes
    ----------
    plan : Plan
        The checked arguments.
    values : array, shape (N,)
        Values of the samples of the last `step`, in their order and array type; 0 where masked.
    record : StepRecord or None
        Details of that call, for metrics; None before the first, after one without samples, and after loading.

    Raises
    ------
    ValueError
        If the method, a parameter, the scale or the objective is unknown, or they do not go together; if a parameter
        is out of range; and for a prior as `add_prior` does.

    Examples
    --------
    >>> estimator = AdvantageEstimator("kae", bandwidth=10)
    >>> estimator.step(["a", "a", "b", "b"], [1.0, 0.0, 1.0, 1.0], step=0).tolist()
    [1.0, -1.0, 0.0, 0.0]
    >>> estimator.step(["a", "a"], [1.0, 0.0], step=1).round(3).tolist()
    [0.679, -0.679]
    """

    def __init__(
        self,
        method: str | Baseline = DEFAULT_METHOD,
        *,
        scale: str | None = None,
        objective: str = "mean",
        prior: Prior | Mapping[Hashable, tuple[float, int]] | str | os.PathLike[str] | None = None,
        **params: Any,
    ):
        super().__init__(Plan.of(method, params, scale, objective))
        if prior is not None:
            self.add_prior(prior)

    def __repr__(self) -> str:
        when = "before its first step" if self.last_step < 0 else f"after step {self.last_step}"
        known = "" if self.history is None else f", {len(self.history):,} prompts known"
        return f"{type(self).__name__}({self._described()}) {when}{known}"

    @property
    def record(self) -> StepRecord | None:
        """The `StepRecord` of the last `step`; None before the first."""
        return self.state.record

    @property
    def values(self) -> Array | None:
        """Values of the samples of the last `step`; None before the first."""
        return self.state.values

    @property
    def history(self) -> RewardHistory | None:
        """The record of past visits; None before the first step, and for memoryless methods."""
        return self.state.history

    @property
    def last_step(self) -> int:
        """The last step recorded; -1 before the first."""
        return self.state.last_step

    @property
    def priors(self) -> tuple[Prior, ...]:
        """The priors that the history will begin with; empty after the first step, when it holds their visits."""
        return self.state.priors

    def step(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[float],
        step: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
        importance: Array | Sequence[float] | None = None,
        divergence: Array | Sequence[float] | None = None,
    ) -> Array:
        """Advantages of the samples of one training step; the samples become the past of later steps.

        Samples may be in any order, groups may be ragged, and a prompt may have several groups. After an interrupt
        (Ctrl-C), the same call again gives its result, and the samples count once.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length N
            The prompt of each sample; the same id must mean the same prompt at every step.
        rewards : array or sequence of float, shape (N,)
            NumPy array, torch tensor (any device) or a sequence.
        step : int
            Training step, 0-based; never smaller than the last one. Different prompts may come in several calls with
            the same step, but each prompt only once.
        mask : array of bool, shape (N,), optional
            False for padding: such samples get advantage 0 and are not recorded, whatever their reward, id or weight.
        stream_ids : sequence of hashables, length N, optional
            Splits a prompt's samples into groups. Group baselines (grpo, rloo, james_stein, ...) compare within
            a group; ``kae_stream`` keeps one history per (prompt, stream), so there the ids must be stable from step to
            step (the copy's position in the batch, not a random uid) and given at every step or at none; all others
            pool the prompt. None makes all samples of a prompt one group.
        weights : array of float, shape (N,), optional
            Non-negative weight of each completion (its squared score norm, or a proxy): averaging baselines
            become variance-optimal ones. Methods with a history need it at every step or at none.
        importance : array of float, shape (N,), optional
            Probability of each completion under the trained policy divided by its probability under the policy that
            sampled it, for averaging baselines. Alone, it makes the value an estimate of the trained policy's mean
            reward; with ``weights``, the baseline is the best one for the reweighted gradient, weighted by
            ``weights * importance**2``. At every step or at none.
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
            For rewards that are not finite, mismatched lengths, missing ids, negative weights, weights that the scaling
            cancels, a step that goes backwards, or a prompt recorded twice at one step. The state is then unchanged.
        TypeError
            For unhashable ids, or rewards that are not numbers.

        Warns
        -----
        UserWarning
            Once if a method with a history has seen no prompt return in 100 steps, or nearly all returned
            after more steps than the history reaches; once if no group has more than one completion, for a method that
            needs more.
        """
        optional = {"weights": weights, "importance": importance, "divergence": divergence}
        after, advantages = self.computed("step", step, optional, prompt_ids, rewards, mask, stream_ids)
        self.shared.states = {**self.shared.states, self.name: after}
        return advantages  # at once: an interrupt may come before the assignment, but not after it

    def observe(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[float],
        step: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
        importance: Array | Sequence[float] | None = None,
        divergence: Array | Sequence[float] | None = None,
    ) -> None:
        """Record completions that get no advantage, such as those of groups that a trainer's filter drops.

        A history that gets only the groups that pass a filter sees mixed groups alone, which pulls its values towards
        1/2. So it needs everything that was sampled and scored. `values` and `record` stay those of the last `step`.
        Parameters and errors as `step`; each prompt of a step comes in one call of either.
        """
        optional = {"weights": weights, "importance": importance, "divergence": divergence}
        after, _ = self.computed("observe", step, optional, prompt_ids, rewards, mask, stream_ids)
        self.shared.states = {**self.shared.states, self.name: after}

    def computed(
        self,
        name: str,
        step: int,
        optional: dict[str, Any],
        prompt_ids: Any,
        rewards: Any,
        mask: Any,
        stream_ids: Any,
        *,
        template: Any = None,
        stacklevel: int = 3,
    ) -> tuple[EstimatorState, Array]:
        """The state after a call, by its name, and the advantages; nothing changes, but warnings come.

        Values have the type of the template, or of the rewards.
        """
        streams = stream_ids if self.plan.baseline.unit == "group" else None
        samples, before = Samples.of(prompt_ids, rewards, mask, streams, **optional), self.state
        after, record = self._advanced(name, before, samples, whole_step(step))
        advantages = values = np.zeros(len(samples.reward))
        if record is not None:
            advantages, values = (record.packing.unpack(each) for each in (record.advantages, record.values))
        if name != "observe":
            values = as_type_of(samples.scatter(values), rewards if template is None else template)
            after = replace(after, record=record, values=values)
        if self.plan.watches_rewards and name != "advantages":
            after = replace(after, seen=before.seen.after(samples.reward))
        if record is not None and self._watches(before, record):
            after, texts = self._warned(before, after, samples, record)
            for text in texts:
                warnings.warn(text, stacklevel=stacklevel)
        return after, as_type_of(samples.scatter(advantages), rewards)

    def predict(self, prompt_ids: Sequence[Hashable], step: int) -> Prediction:
        """Predicted values of prompts before they are sampled; nothing is recorded.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length P
            Distinct prompts, known or not; pairs of prompt and stream for ``kae_stream`` with stream ids. Methods that
            pool prompts use the other prompts in this list.
        step : int
            The step at which the prompts would be sampled, after their last visits.

        Returns
        -------
        Prediction
            Arrays of shape (P,), in the order of the ids. They predict the expected reward, also if completions have
            weights.

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
        keys, step = check_ids("prompt_ids", prompt_ids), whole_step(step)
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"prompt_ids: {twice!r} comes twice; ask for each prompt once.")
        with self.lock:
            state = self.state
            if state.priors:
                state = self._begun(state, state.given or "")
            visits, carry = (None, state.carry) if state.history is None else self._known(state, keys, step)
            reweighted = state.given is not None and "importance" in state.given and "weights" not in state.given
            return predict(self.baseline, state.history, visits, carry, keys, step, reweighted=reweighted)

    def add_prior(self, prior: Prior | Mapping[Hashable, tuple[float, int]] | str | os.PathLike[str]) -> None:
        """Begin with what is known about prompts.

        A prior is one visit of each of its prompts, with a number of completions and a date (`kaestat.Prior`). It acts
        as if this estimator had recorded the visit at that date: it fades like any visit, predictions use it, and a
        saved state holds it, so do not give it again after a resume. Prompts without a prior
        begin without data, and ids that never occur do no harm. A warning says so if no prompt of the
        first step has a prior, or if rewards leave [0, 1] and the prior is of zeros and ones: a bare mean is.

        - You can add several priors, for example of several checkpoints, each with its date.
        - Where steps come with ``weights``, the prior's completions must have them too (`Prior.of_samples`); with
          ``importance`` alone their ratio is 1.
        - Methods that keep more of a visit than its sums (``bayes_filter``) get completions with the prior's mean.
        - The tracker of ``spo`` still starts at its own ``prior_mean`` and ``prior_count``, and `Kalman` at its
          ``initial_mean``; the prior is their first visit. ``kae_stream`` gives every visit the same weight, so the
          count does not matter there.

        Parameters
        ----------
        prior : Prior, mapping or path
            As the argument of that name of the class.

        Raises
        ------
        ValueError
            If the method keeps no history or cannot use visits from before the run; if a mean is impossible for its
            rewards; if a prompt already has a prior of that date; or if the run has begun. The state is then unchanged.
        TypeError
            If it is not a prior.

        Examples
        --------
        >>> estimator = AdvantageEstimator("kae_eb")
        >>> estimator.add_prior({"a": (0.25, 8), "b": (1.0, 8)})
        >>> estimator.predict(["b", "a"], step=0).value.round(2).tolist()
        [1.0, 0.25]
        """
        prior = as_prior(prior)
        check_prior(self.baseline, self.method, prior)
        self.put(with_prior(self.state, prior))

    # What depends on the order of steps: `kaestat.AsynchronousEstimator` has its own.

    def _described(self) -> str:
        return str(self.plan)

    def _new_history(self, given: str) -> RewardHistory:
        baseline = self.baseline
        return RewardHistory(
            baseline.horizon,
            weighted=is_weighted(given),
            with_divergence="divergence" in given,
            max_visits=baseline.max_visits,
            state_size=baseline.state_size,
        )

    def _begun(self, state: EstimatorState, given: str, center: float = 0.0) -> EstimatorState:
        """The state with a history, for completions with these inputs; the given state is unchanged."""
        history = self._new_history(given)
        history.center = center
        return with_history(state, self.baseline, history, given)

    def _center(self, reward: np.ndarray) -> float:
        """What is subtracted from all rewards, from the first ones."""
        return center_of(reward) if self.baseline.relative and self.objective == "mean" else 0.0

    def _advanced(
        self, name: str, state: EstimatorState, samples: Samples, step: int
    ) -> tuple[EstimatorState, StepRecord | None]:
        """The state after a call, and its record; a ValueError for a step back, or a prompt twice at one step."""
        keys = samples.packing.keys
        if step < state.last_step:
            raise ValueError(
                f"step went backwards: got {step} after {state.last_step}. To resume or replay from step {step}, load "
                "the state that was saved before it; late rewards need kaestat.AsynchronousEstimator."
            )
        if not keys:
            return replace(state, last_step=step), None
        if state.history is None and self.plan.horizon > 0:
            state = self._begun(state, samples.given, self._center(samples.reward))
        history, batch = state.history, group(self.plan, state, samples, step)
        if history is None:
            return self._without_history(state, batch)
        rows = history.rows(keys)
        history.check_new(keys, rows, step)
        record, served = compute(self.plan, batch, history.visits_of(rows, step), state.carry)
        write = history.appended(keys, rows, step, visit_sums(batch.groups), served.state)
        return replace(state, carry=served.carry, last_step=step, given=samples.given, write=write), record

    def _without_history(self, state: EstimatorState, batch: Batch) -> tuple[EstimatorState, StepRecord]:
        record, served = compute(self.plan, batch, Visits.empty(batch.groups), state.carry)
        recorded = {} if served.carry is None else self._recorded(state, batch)
        return replace(state, carry=served.carry, last_step=batch.step, recorded=recorded), record

    def _recorded(self, state: EstimatorState, batch: Batch) -> dict[Hashable, None]:
        """The prompts of a step, after one more call; a ValueError if one comes twice."""
        keys, recorded = batch.samples.packing.keys, state.recorded if batch.step == state.last_step else {}
        if again := [key for key in keys if key in recorded]:
            raise ValueError(
                f"prompt {again[0]!r} was already recorded at step {batch.step}: its rewards would count twice."
            )
        return recorded | dict.fromkeys(keys)

    def _known(self, state: EstimatorState, keys: list[Hashable], step: int) -> tuple[Visits, Any]:
        """Visits and carry from which prompts are predicted; the state has a history."""
        assert state.history is not None
        return state.history.visits(keys, step), state.carry

    def _watches(self, before: EstimatorState, record: StepRecord) -> bool:
        """Whether a step may bring a warning."""
        small, plan = record.groups.reward.shape[1] < 2, self.plan
        return plan.watches_rewards or (small if plan.horizon == 0 else not before.returns.judged)

    def _warned(
        self, before: EstimatorState, after: EstimatorState, samples: Samples, record: StepRecord
    ) -> tuple[EstimatorState, list[str]]:
        """The state after a step, and its warnings."""
        return step_warnings(self.plan, before, after, samples, record)
