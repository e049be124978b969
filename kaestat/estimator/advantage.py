"""The stateful object in a training loop that turns rewards into advantages, step by step."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.arrays import Array
from kaestat.core.checks import whole_step
from kaestat.core.samples import StepSamples, as_type_of, largest_like, scatter
from kaestat.core.storage import load_state, reading
from kaestat.estimator.held_state import Answer, Call, Change, make_changes
from kaestat.estimator.notices import noticed
from kaestat.estimator.plan import Plan, arguments
from kaestat.estimator.prompt_values import PromptValues
from kaestat.estimator.record import StepRecord
from kaestat.estimator.steps.call import advance
from kaestat.estimator.stored import loaded
from kaestat.history.prior import Prior


class AdvantageEstimator(PromptValues):
    """Advantages ``reward - value`` for the samples of each training step, with the history kept inside.

    Parameters
    ----------
    method : str or Baseline, optional
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
    order : {"strict", "any"}
        With "strict", steps come in order and each prompt once per step; anything else is an error. With "any", samples
        come in any order and in parts: late rewards, completions of several policy versions, several calls for a
        prompt.
    late : int, optional
        With ``order="any"``, the number of steps by which completions may come after the newest and still find the
        whole past that they would have had in order. Memory grows as if the horizon were longer by this number. None
        for as many as the method looks back (in steps, or in visits if visits are limited), at least 16. The first
        completion that is even later triggers a warning, since part of its history is gone.
    keep_deltas : bool
        Keep what is recorded until `take_delta` returns it for other workers; only with ``order="any"``.
    prior : Prior, mapping or path, optional
        What is known about prompts before the run: a `kaestat.Prior`, ``{prompt_id: (mean reward, completions)}``, or a
        file for `Prior.read`. See `add_prior`. A loaded state holds its own prior, which replaces this one.
    **params
        Parameters of the baseline, for example ``kernel="triangular", bandwidth=10.0`` for ``"kae"``.

    Attributes
    ----------
    values : array, shape (N,)
        Values of the samples of the last `step` or `advantages`, in their order and array type; 0 where masked.
    record : StepRecord or None
        Details of that call, for metrics; None before the first, after one without samples, and after loading.

    Raises
    ------
    ValueError
        If the method, a parameter, the scale or the objective is unknown; if a parameter is out of range; for a scale
        by the group's deviation and a method whose values come from elsewhere; for an
        objective other than the mean and a method without a history; with ``order="any"``, for a method that needs
        steps in order; and for a prior as `add_prior` does.

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
        order: Literal["strict", "any"] = "strict",
        late: int | None = None,
        keep_deltas: bool = False,
        prior: Prior | Mapping[Hashable, tuple[float, int]] | str | os.PathLike[str] | None = None,
        **params: Any,
    ):
        super().__init__(Plan.of(method, params, scale, objective, order, late, keep_deltas))
        if prior is not None:
            self.add_prior(prior)

    def __repr__(self) -> str:
        when = "before its first step" if self.last_step < 0 else f"after step {self.last_step}"
        known = "" if self.history is None else f", {len(self.history):,} prompts known"
        return f"AdvantageEstimator({self.plan}) {when}{known}"

    @property
    def record(self) -> StepRecord | None:
        """The `StepRecord` of the last `step` or `advantages`; None before the first."""
        return self.held.record

    @property
    def values(self) -> Array | None:
        """Values of the samples of the last `step` or `advantages`; None before the first."""
        return self.held.values

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
        version: Array | Sequence[int] | None = None,
    ) -> Array:
        """Advantages of the samples of one training step; the samples become the past of later steps.

        Samples may be in any order, groups may be ragged, and a prompt may have several groups. After an interrupt
        (Ctrl-C), the same call again from the same thread gives its result, and the samples count once.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length N
            The prompt of each sample; the same id must mean the same prompt at every step.
        rewards : array or sequence of float, shape (N,)
            NumPy array, torch tensor (any device) or a sequence.
        step : int
            Training step, 0-based; never smaller than the last one. Different prompts may come in several calls with
            the same step, but each prompt only once. With ``order="any"`` any step is allowed, and a prompt may come
            in several calls with different completions.
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
        version : array of int, shape (N,), optional
            With ``order="any"``, the step of the policy that sampled each completion, at most ``step``; None for
            ``step`` itself. The completion is recorded under it. A prompt's completions in one call are one
            group. Completions that earlier calls recorded under the group's newest version belong to the group too;
            those recorded under earlier versions are its past.

        Returns
        -------
        array, shape (N,)
            Same array type, device, floating type and order as ``rewards``. NumPy for sequences and pandas Series;
            float64 for NumPy integers and Booleans, torch's default type for its integers.

        Raises
        ------
        ValueError
            For rewards that are not finite, mismatched lengths, missing ids, negative weights, weights that the scaling
            cancels, or a version after the step; in strict order also for a step that goes backwards, or a prompt
            recorded twice at one step. The state is then unchanged.
        TypeError
            For unhashable ids, or rewards that are not numbers.

        Warns
        -----
        UserWarning
            Once if a method with a history has seen no prompt return in 100 steps, or nearly all returned
            after more steps than the history reaches; once if completions are later than ``late``; once if no group
            has more than one completion, for a method that needs more.
        """
        call, columns = Call(), (mask, stream_ids, weights, importance, divergence, version)
        advantages = self.recorded("step", call, prompt_ids, rewards, step, *columns)
        return call.finish(advantages)

    def advantages(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[float],
        now: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
        importance: Array | Sequence[float] | None = None,
        version: Array | Sequence[int] | None = None,
    ) -> Array:
        """Advantages of completions that may be recorded already, with ``order="any"``; records nothing.

        For rewards that are recorded as they arrive (`observe`) and trained on later. The history's visits of a prompt
        at the given versions may hold these same completions, so they are replaced by the completions of the call.

        Parameters
        ----------
        prompt_ids, rewards, mask, stream_ids, weights, importance
            As in `step`.
        now : int
            Present training step.
        version : array of int, shape (N,), optional
            The version that each completion was recorded under, as in `step`. Any other version would let its own
            reward into its value.

        Returns
        -------
        array, shape (N,)
            As `step`.

        Raises
        ------
        ValueError
            As `step`; always in strict order.
        TypeError
            As `step`.
        """
        columns = mask, stream_ids, weights, importance, None, version
        return self.recorded("advantages", Call(), prompt_ids, rewards, now, *columns)

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
        version: Array | Sequence[int] | None = None,
    ) -> None:
        """Record completions that get no advantage, such as those of groups that a trainer's filter drops.

        A history that gets only the groups that pass a filter sees mixed groups alone, which pulls its values towards
        1/2. So it needs everything that was sampled and scored. `values` and `record` stay those of the last `step`.

        Parameters
        ----------
        prompt_ids, rewards, step, mask, stream_ids, weights, importance, divergence, version
            As in `step`. Calls of `step` and `observe` with the same step may come in any order; each prompt comes in
            only one of them; with ``order="any"``, each completion does.

        Raises
        ------
        ValueError, TypeError
            As `step`.
        """
        call, columns = Call(), (mask, stream_ids, weights, importance, divergence, version)
        self.recorded("observe", call, prompt_ids, rewards, step, *columns)
        call.finish(None)

    def recorded(
        self, name: str, call: Call, prompt_ids: Sequence[Hashable], rewards: Any, step: int, *columns: Any
    ) -> Array:
        """The result of `step`, `observe` or `advantages` as a part of a larger call.

        Until the call is finished, a call with the same arguments counts as its repetition: it gives the same result,
        and records nothing again. The caller finishes it (`Call.finish`), and gives the columns in the order of
        `step`.
        """
        with self.lock:
            change = self.prepared(name, call, prompt_ids, rewards, step, *columns)
            make_changes([change], stacklevel=4)
        return as_type_of(change.advantages, rewards)

    def prepared(
        self, name: str, call: Call, ids: Sequence[Hashable], rewards: Any, step: int, *more: Any, template: Any = None
    ) -> Change:
        """The result of `recorded` without its effect; `values` have the type of the template or the rewards."""
        step, template = whole_step(step), rewards if template is None else template
        samples = StepSamples.of(ids, rewards, *more, by_stream=self.baseline.unit == "group")
        held = self.held
        last, order, serving = held.answer, held.plan.order, held.plan.serving
        if last is not None and last.is_kept_back(name, step) and samples.same_as(last.samples):
            after = held._replace(answer=last._replace(call=call))
            return Change(self.cell, after, last.advantages, last.values, repeats=last.call)
        if name == "step":
            outcome = advance(order, held.state, serving, samples, step)
        else:
            outcome = (order.observe if name == "observe" else order.advantages)(held.state, serving, samples, step)
        after, warnings = noticed(held, outcome, samples, new=name != "advantages")
        found = (np.zeros(len(samples.reward)),) * 2 if outcome.record is None else outcome.record.of_samples
        advantages, values = (scatter(each, samples.keep) for each in found)
        serving.check_finite(advantages, values, largest=largest_like(template))
        if name != "observe":
            after = after._replace(record=outcome.record, values=as_type_of(values, template))
        if name != "advantages":
            answer = Answer(call, name, step, samples, advantages, values)
            after = after.keeping(outcome.delta, self.sender)._replace(answer=answer)
        return Change(self.cell, after, advantages, values, warnings=warnings)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The estimator in a file written by `save`; it continues bit for bit as if it had never stopped.

        Raises
        ------
        ValueError
            If the file is damaged, or holds something else.
        """
        return cls.of_content(load_state(path), path)

    @classmethod
    def of_content(cls, content: dict[str, Any], path: str | os.PathLike[str]) -> Self:
        """The result of `load`, from the content already read from the file at ``path``."""
        plan = content.get("estimator")
        if not isinstance(plan, dict):
            raise ValueError(f"{path}: holds no AdvantageEstimator.")
        with reading(str(path)):
            method, options = arguments(plan)
            estimator = cls(method, **options)
        held = loaded(content.get("state"), estimator.plan, estimator.sender)
        make_changes([Change(estimator.cell, held)])
        return estimator
