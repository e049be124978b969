"""Knowledge about prompts between steps: predict from it, add to it from elsewhere, save it."""

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.checks import check_ids, whole_step
from kaestat.core.locked import Locked
from kaestat.core.storage import pack_arrays, save_state, unpack_arrays
from kaestat.estimator.held_state import Cell, Change, Held, Sender, make_changes, settle
from kaestat.estimator.notices import alien_prior
from kaestat.estimator.plan import Plan
from kaestat.estimator.prediction import Prediction
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.steps.call import predicted
from kaestat.estimator.steps.opening import check_prior, with_prior
from kaestat.estimator.stored import loaded, opening, snapshot
from kaestat.history.delta import HistoryDelta, concat
from kaestat.history.history import RewardHistory
from kaestat.history.prior import Prior, as_prior
from kaestat.history.received_deltas import Origin, Received


class PromptValues(Locked):
    """Knowledge about prompts that an estimator keeps between steps."""

    def __init__(self, plan: Plan):
        super().__init__()
        self.sender = Sender()
        self.cell = Cell(opening(EstimatorState.first(plan.serving.baseline, plan.order.late), plan))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As `Locked`; a copy changes alone."""
        super().__setstate__(state)
        self.cell, self.sender = Cell(self.cell.value), Sender()

    @property
    def held(self) -> Held:
        """All of the present state."""
        with self.lock:
            return settle(self.cell)

    @property
    def plan(self) -> Plan:
        """The arguments of the estimator."""
        return self.held.plan

    @property
    def method(self) -> str:
        """Name of the method, or of a baseline object's type."""
        return self.plan.serving.method

    @property
    def baseline(self) -> Baseline:
        """The baseline that computes the values."""
        return self.plan.serving.baseline

    @property
    def scale(self) -> str:
        """The scaling of advantages."""
        return self.plan.serving.scale

    @property
    def objective(self) -> str:
        """The function of each prompt's success rate to maximise."""
        return self.plan.serving.objective

    @property
    def order(self) -> str:
        """The order of steps, "strict" or "any"."""
        return self.plan.order.name

    @property
    def late(self) -> int | None:
        """The number of steps by which completions may be late; None in strict order."""
        return self.plan.order.late

    @property
    def history(self) -> RewardHistory | None:
        """The record of past visits; None before the first step, and for memoryless methods."""
        return self.held.state.history

    @property
    def last_step(self) -> int:
        """The last step recorded; -1 before the first."""
        return self.held.state.last_step

    def predict(self, prompt_ids: Sequence[Hashable], step: int) -> Prediction:
        """Predicted values of prompts before they are sampled; nothing is recorded.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length P
            Distinct prompts, known or not; pairs of prompt and stream for ``kae_stream`` with stream ids. Methods that
            pool prompts use the other prompts in this list.
        step : int
            The step at which the prompts would be sampled, after their last visits. With ``order="any"``, visits at or
            after this step are left out.

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
        >>> from kaestat import AdvantageEstimator
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
        with self.lock:
            return predicted(self.plan.order, self.held.state, self.baseline, keys, step)

    @property
    def priors(self) -> tuple[Prior, ...]:
        """The priors that the history will begin with; empty after the first step, when it holds their visits."""
        return self.held.state.priors

    def add_prior(self, prior: Prior | Mapping[Hashable, tuple[float, int]] | str | os.PathLike[str]) -> None:
        """Begin with what is known about prompts, or add it during a run.

        A prior is one visit of each of its prompts, with a number of completions and a date (`kaestat.Prior`). It acts
        as if this estimator had recorded the visit at that date: it fades like any visit, predictions use it, and a
        saved state holds it, so do not give it again after a resume. Prompts without a prior
        begin without data, and ids that never occur do no harm. A warning says so if no prompt of the
        first step has a prior, or if rewards leave [0, 1] and the prior is of zeros and ones: a bare mean is.

        - You can add several priors, for example of several checkpoints, each with its date.
        - Deltas for other workers do not hold it: give every worker the same prior.
        - Where steps come with ``weights``, the prior's completions must have them too (`Prior.of_samples`); with
          ``importance`` alone their ratio is 1.
        - Methods that keep more of a visit than its sums (``bayes_filter``) get completions with the prior's
          mean. These methods, and ``spo`` with divergences, accept a prior only before the first step.
        - The tracker of ``spo`` still starts at its own ``prior_mean`` and ``prior_count``, and `Kalman` at its
          ``initial_mean``; the prior is their first visit. ``kae_stream`` gives every visit the same weight, so the
          count does not matter there.

        Parameters
        ----------
        prior : Prior, mapping or path
            As the argument of that name of `kaestat.AdvantageEstimator`. Its completions must not be recorded yet.

        Raises
        ------
        ValueError
            If the method keeps no history or cannot use visits from before the run; if a mean is impossible for its
            rewards; if a prompt already has a prior of that date; or if the run has begun and the prior is
            dated after the last step, or comes too late for the method. The state is then unchanged.
        TypeError
            If it is not a prior.

        Examples
        --------
        >>> from kaestat import AdvantageEstimator
        >>> estimator = AdvantageEstimator("kae_eb")
        >>> estimator.add_prior({"a": (0.25, 8), "b": (1.0, 8)})
        >>> estimator.predict(["b", "a"], step=0).value.round(2).tolist()
        [1.0, 0.25]
        """
        known = as_prior(prior)
        check_prior(self.baseline, self.method, known)
        with self.lock:
            held = self.held
            after = held._replace(state=with_prior(held.state, self.baseline, known))
            alien = alien_prior((known,), None, held.state.history)
            make_changes([Change(self.cell, after, warnings=() if alien is None else (alien,))])

    def merge(self, delta: HistoryDelta) -> None:
        """Add what others recorded, with ``order="any"``: associative and commutative, up to the rounding of sums.

        Raises a ValueError if its sums differ from those of this history, or the method has no history. The state is
        then unchanged.

        Parameters
        ----------
        delta : HistoryDelta
            From `take_delta` or `pending_delta` of another worker. Parts that this estimator already holds, or
            recorded itself, count once.
        """
        with self.lock:
            make_changes([self.merged(delta)])

    def merged(self, delta: HistoryDelta) -> Change:
        """The result of `merge`, without its effect."""
        held = self.held
        state = self.plan.order.merged(held.state, self.plan.serving, delta)
        return Change(self.cell, held._replace(state=state))

    def take_delta(self) -> HistoryDelta:
        """Everything recorded by `step` and `observe` since the last call, for others to `merge`.

        If a delta may be lost on its way, use `pending_delta` and `acknowledge`. Raises a ValueError if the estimator
        was not made with ``keep_deltas=True``.
        """
        with self.lock:
            held = self.held
            delta = concat(held.kept_deltas("take_delta"), held.state.last_step)
            self._change(held._replace(deltas=()))
            return delta

    def pending_delta(self) -> HistoryDelta:
        """The delta that `take_delta` would return; it stays until others `acknowledge` it.

        Raises a ValueError as `take_delta` does.
        """
        with self.lock:
            return concat(self.held.kept_deltas("pending_delta"), self.last_step)

    def acknowledge(self, origins: Iterable[Origin]) -> None:
        """Drop the parts of the pending delta that all others hold, by origin (`HistoryDelta.origins`).

        Raises a ValueError as `take_delta` does.
        """
        held_elsewhere = frozenset(origins)
        with self.lock:
            held = self.held
            parts = (delta.without(held_elsewhere) for delta in held.kept_deltas("acknowledge"))
            self._change(held._replace(deltas=tuple(part for part in parts if part.origins)))

    @property
    def received(self) -> Received:
        """The numbers of all deltas in this estimator, including its own."""
        return self.held.state.received

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data (arrays as bytes), for a trainer's checkpoint.

        It survives pickle and ``torch.save`` with ``torch.load(weights_only=True)``.
        """
        return self.state_snapshot()()

    def state_snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that returns `state_dict` as of now; a step then only pays for a copy of the arrays."""
        with self.lock:
            plain = snapshot(self.held)
        return lambda: pack_arrays(plain())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the result of `state_dict`; the estimator must have been built with the same method.

        Raises a ValueError if the state belongs to another method or does not fit together. The estimator is then
        unchanged.
        """
        with self.lock:
            make_changes([self.taken(state)])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write method, parameters and state to one file, atomically and without pickle.

        Raises a TypeError if a parameter (a kernel function of your own) or a prompt id cannot be stored.
        """
        save_state(path, self.content())

    def content(self) -> dict[str, Any]:
        """The content that `save` writes."""
        with self.lock:
            held = self.held
            state = snapshot(held)
        return {"estimator": held.plan.plain(), "state": state()}

    def taken(self, state: dict[str, Any]) -> Change:
        """The result of `load_state_dict`, without its effect."""
        self.sender = Sender()  # numbers after those of the state may have been given already
        return Change(self.cell, loaded(unpack_arrays(state), self.plan, self.sender))

    def _change(self, after: Held) -> None:
        make_changes([Change(self.cell, after)])
