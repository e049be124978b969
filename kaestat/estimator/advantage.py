"""From rewards to advantages, step by step: the stateful object that a training loop holds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import changed_parameters, get_method, make_baseline, with_specified
from kaestat.core.arrays import Array
from kaestat.core.checks import check_ids, whole_step
from kaestat.core.samples import as_type_of
from kaestat.estimator.default_method import default_for
from kaestat.estimator.held_state import Call, Held, make_changes
from kaestat.estimator.objective import check_objective
from kaestat.estimator.prediction import Prediction
from kaestat.estimator.prepared_calls import PreparedCalls
from kaestat.estimator.reach import ReturnWatch
from kaestat.estimator.scaling import make_scaling
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.steps import any_order, strict_order
from kaestat.estimator.stored_estimator import StoredEstimator
from kaestat.history.prior import Prior


class AdvantageEstimator(PreparedCalls, StoredEstimator):
    """Advantages ``reward - value`` for the samples of each training step, with the history kept inside.

    Parameters
    ----------
    method : str or Baseline, optional
        One of `kaestat.methods()`, or a specification with parameters such as ``"kae:bandwidth=10"``, as
        `kaestat.value_risk` takes; or a baseline object, whose own scaling is none. None for the default,
        `kaestat.baselines.registry.DEFAULT_METHOD`; where that cannot serve (``order="any"``, and weights or importance
        at the first step), a warning names the method that takes its place.
    scale : {"none", "group_std", "batch_std", "informative", "trl_group", "trl_batch"}, optional
        Overrides the method's own scaling: none; division by the group's standard deviation; whitening over the
        batch; GPG's; TRL's two. Those that divide take an epsilon, as in ``"group_std(epsilon=1e-4)"``. None keeps
        the published one (`kaestat.baselines.registry.METHODS`).
    objective : {"mean", "log", "pass@K", "arcsin", "bnpo"}
        What of each prompt's success rate V is maximised: V itself, its logarithm, the chance of a success in K tries
        (``"pass@8"``), what division by the standard deviation does, or BNPO's. Advantages are multiplied by the
        objective's slope at the rate of the prompt's past (`kaestat.estimator.objective`), before any scaling; only
        for methods with a history and rewards between 0 and 1.
    order : {"strict", "any"}
        Whether steps come in order, each prompt once a step, so that anything else is refused as a fault; or in any
        order and in parts: late rewards, completions of several policy versions, several calls for a prompt.
    late : int, optional
        With ``order="any"``, steps by which completions may come after the newest and still find the whole past that
        they would have had in order; memory grows as if the horizon were longer by as much. None for as many as the
        method looks back (in steps, or in visits where those are what is limited), 16 at least. The first one that is
        later still is told of by a warning: its value has less of a past.
    keep_deltas : bool
        Keep what comes in until `take_delta` asks for it, for other workers; only with ``order="any"``.
    prior : Prior, mapping or path, optional
        What is known of prompts before the run: a `kaestat.Prior`, ``{prompt_id: (mean reward, completions)}``, or a
        file for `Prior.read`. See `add_prior`. A state that is loaded holds its own, and takes its place.
    **params
        Parameters of the baseline, for example ``kernel="triangular", bandwidth=10.0`` for ``"kae"``.

    Attributes
    ----------
    values : array, shape (N,)
        Values of the samples of the last `step` or `advantages`, in their order and array type; 0 where masked.
    record : StepRecord or None
        What that call did, for metrics; None before the first, after one without samples, and after loading.

    Raises
    ------
    ValueError
        If the method, a parameter, the scale or the objective is unknown, a parameter out of range, or the objective
        not the mean for a method without a history; with ``order="any"``, if the
        method streams what it knows through the steps; and for a prior as `add_prior` does.

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
        method: str | Baseline | None = None,
        *,
        scale: str | None = None,
        objective: str = "mean",
        order: Literal["strict", "any"] = "strict",
        late: int | None = None,
        keep_deltas: bool = False,
        prior: Prior | Mapping[Hashable, tuple[float, int]] | str | os.PathLike[str] | None = None,
        **params: Any,
    ):
        self._by_default = method is None
        if method is None:
            method = default_for(order)
        if isinstance(method, Baseline):
            if params:
                raise ValueError(f"{', '.join(params)}: a Baseline object has its parameters already; leave them out.")
            self.method, self.baseline, own_scale = type(method).__name__, method, "none"
        else:
            method, params = with_specified(method, params)
            known = get_method(method)
            self.method, self.baseline = method, make_baseline(method, **params)
            own_scale = known.scale
        if scale is not None:
            make_scaling(scale if isinstance(scale, str) else repr(scale))
        if self.baseline.missing_input is not None:
            raise ValueError(f"method {self.method!r} needs {self.baseline.missing_input}.")
        check_objective(objective, self.method, self.baseline)
        self.objective = objective
        self._named, self._params, self._scale = isinstance(method, str), params, scale
        self.scale = own_scale if scale is None else scale
        any_order.check_options(order, keep_deltas, late)
        self.order = order
        if order == "any":
            any_order.check_method(self._serving)
        self._late, self.late = late, any_order.allowance(self.baseline, late) if order == "any" else None
        self._keep_deltas = keep_deltas
        state = EstimatorState(self.baseline.initial_carry() if order == "strict" else None, late=self.late)
        returns = ReturnWatch(self.method, self.baseline)
        super().__init__(Held(state, returns, deltas=() if keep_deltas else None))
        if prior is not None:
            self.add_prior(prior)

    def __repr__(self) -> str:
        given = [repr(self.method if self._named else self.baseline)]
        given += [f"{name}={value!r}" for name, value in changed_parameters(self.baseline, self._params).items()]
        given += [] if self._scale is None else [f"scale={self._scale!r}"]
        given += [] if self.objective == "mean" else [f"objective={self.objective!r}"]
        given += [] if self.order == "strict" else [f"order={self.order!r}"]
        given += [] if self._late is None else [f"late={self._late}"]
        when = "before its first step" if self.last_step < 0 else f"after step {self.last_step}"
        known = "" if self.history is None else f", {len(self.history):,} prompts known"
        return f"AdvantageEstimator({', '.join(given)}) {when}{known}"

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
        """Advantages of the samples of one training step; records them as the past of later steps.

        Samples may stand in any order, groups may be ragged, and a prompt may have several groups. After an interrupt
        (Ctrl-C), the same call again from the same thread gives its result, and the samples count once.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length N
            The prompt of each sample; the same id must mean the same prompt at every step.
        rewards : array or sequence of float, shape (N,)
            NumPy array, torch tensor (any device) or a sequence.
        step : int
            Training step, 0-based; never smaller than the last one. Different prompts may come in several calls with
            the same step, but a prompt only once. With ``order="any"`` any step, and a prompt as often as its
            completions come in parts; each completion still only once.
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
        importance : array of float, shape (N,), optional
            Ratio of the probability of each completion under the policy that is trained to that under the one that
            sampled it, for averaging baselines. Alone, the value is the mean reward weighted by it, which is that of
            the trained policy; with ``weights``, the baseline is the best for the reweighted gradient, weighted by
            ``weights * importance**2``. At every step or at none.
        divergence : array of float, shape (N,), optional
            Policy divergence since the prompt's last visit (nats), the same for all its samples; only for
            adaptive ``spo``, at every step or at none.
        version : array of int, shape (N,), optional
            With ``order="any"``, the step of the policy that sampled each completion, at most ``step``; None for
            ``step`` itself. It is what a completion is recorded under. A prompt's completions of one call are one
            group; what earlier calls recorded under the newest version among them belongs to it, and what was recorded
            under versions before that is its past.

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
            For unhashable ids, or rewards that are no numbers.

        Warns
        -----
        UserWarning
            If a method with a history has not seen a single prompt come back in 100 steps, or nearly all that came
            back did so after more steps than the history reaches; once, if completions are later than ``late``.
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
        """Advantages of completions that may have been recorded already, with ``order="any"``; records nothing.

        For rewards that are recorded as they come (`observe`) and trained on later. What the history has of a prompt at
        the versions given is left out, since it may hold these very completions; the call's own take its place.

        Parameters
        ----------
        prompt_ids, rewards, mask, stream_ids, weights, importance
            As in `step`.
        now : int
            Present training step.
        version : array of int, shape (N,), optional
            What each completion has been recorded under, as in `step`. Another one would let its own reward in.

        Returns
        -------
        array, shape (N,)
            As `step`.

        Raises
        ------
        ValueError
            As `step`, and in strict order.
        TypeError
            As `step`.
        """
        self._any_order_only("advantages")
        samples = self._samples(prompt_ids, rewards, mask, stream_ids, weights, importance, None, version)
        now = whole_step(now)
        with self.lock:
            change = self._asked(samples, now, rewards)
            make_changes([change])
        return as_type_of(change.advantages, rewards)

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

        A history that sees only what a filter lets through is one of mixed groups, and its values are pulled towards
        1/2: whatever was sampled and scored belongs into it. `values` and `record` stay those of the last `step`.

        Parameters
        ----------
        prompt_ids, rewards, step, mask, stream_ids, weights, importance, divergence, version
            As in `step`. Calls of `step` and `observe` with the same step may come in any order; a prompt comes in one
            of them, or with ``order="any"`` each completion in one.

        Raises
        ------
        ValueError, TypeError
            As `step`.
        """
        call, columns = Call(), (mask, stream_ids, weights, importance, divergence, version)
        self.recorded("observe", call, prompt_ids, rewards, step, *columns)
        call.finish(None)

    def predict(self, prompt_ids: Sequence[Hashable], step: int) -> Prediction:
        """Values of prompts before they are sampled; nothing is recorded.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length P
            Distinct prompts, known or not; pairs of prompt and stream for ``kae_stream`` with stream ids. Methods that
            pool prompts borrow from the others that are asked for.
        step : int
            The step at which the prompts would be sampled, after their last visits. With ``order="any"`` visits at it
            and after it are left out.

        Returns
        -------
        Prediction
            Arrays of shape (P,), in the order of the ids. Always of the expected reward, also where completions have
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
        listed = prompt_ids.tolist() if isinstance(prompt_ids, np.ndarray) else prompt_ids
        keys, step = check_ids("prompt_ids", listed), whole_step(step)
        if len(set(keys)) < len(keys):
            twice = next(key for key, times in Counter(keys).items() if times > 1)
            raise ValueError(f"prompt_ids: {twice!r} comes twice; ask for each prompt once.")
        of_order = any_order if self.order == "any" else strict_order
        with self.lock:
            return of_order.predicted(self._state, self.baseline, keys, step)
