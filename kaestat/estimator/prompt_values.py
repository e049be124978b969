"""What is known of prompts between the steps: predicted, added to from elsewhere, saved."""

from __future__ import annotations

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
    """What an estimator of some plan knows of prompts between its steps."""

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
        """All that is known now."""
        with self.lock:
            return settle(self.cell)

    @property
    def plan(self) -> Plan:
        """What it was made with."""
        return self.held.plan

    @property
    def method(self) -> str:
        """Name of the method, or of a baseline object's type."""
        return self.plan.serving.method

    @property
    def baseline(self) -> Baseline:
        """What gives the values."""
        return self.plan.serving.baseline

    @property
    def scale(self) -> str:
        """How advantages are scaled."""
        return self.plan.serving.scale

    @property
    def objective(self) -> str:
        """What of each prompt's success rate is maximised."""
        return self.plan.serving.objective

    @property
    def order(self) -> str:
        """Whether steps come in order, "strict", or as they like, "any"."""
        return self.plan.order.name

    @property
    def late(self) -> int | None:
        """Steps by which completions may be late; None in strict order."""
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
        """What the history is to begin with; empty once a step has been recorded, when it holds their visits."""
        return self.held.state.priors

    def add_prior(self, prior: Prior | Mapping[Hashable, tuple[float, int]] | str | os.PathLike[str]) -> None:
        """Begin with what is known of prompts already, or add it to a run under way.

        A prior is a visit of each of its prompts, with its count of completions and its date (`kaestat.Prior`), and
        what follows is as if the visit had been made by this estimator at that date: it fades like one, predictions
        hold it, and a state that is saved has it, so that it is not given again after a resume. Prompts without one
        begin with nothing, and ids that never come do no harm; if no prompt of the first step has one, a warning says
        so.

        - Several priors may be given, such as of several checkpoints, each of its date.
        - Deltas for other workers do not hold it: every worker is given the same one.
        - Where steps come with ``weights``, the prior's completions must have them too (`Prior.of_samples`); beside
          ``importance`` alone their ratio is 1.
        - Methods that keep more of a visit than its sums (``bayes_filter``) are shown completions with the prior's
          mean. They, and ``spo`` with divergences, take a prior before the first step only.
        - The tracker of ``spo`` starts at its own ``prior_mean`` and ``prior_count`` still, and `Kalman` at its
          ``initial_mean``: a prior is their first visit. ``kae_stream`` gives every visit the same weight, so the count
          does not matter there.

        Parameters
        ----------
        prior : Prior, mapping or path
            As the argument of that name of `kaestat.AdvantageEstimator`. Of completions that have not been recorded.

        Raises
        ------
        ValueError
            If the method keeps no history or has no use for visits from before the run, a mean is no value that its
            rewards can have, a prompt has a prior of that date already, or the run is past the first step and the prior
            dated after the last, or too late for the method. The state is then unchanged.
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
            self._change(held._replace(state=with_prior(held.state, self.baseline, known)))

    def merge(self, delta: HistoryDelta) -> None:
        """Add what came in elsewhere, with ``order="any"``: associative and commutative, up to the rounding of sums.

        Parameters
        ----------
        delta : HistoryDelta
            From `take_delta` or `pending_delta` of another worker. A part that came before, or that this estimator
            recorded itself, counts once.

        Raises
        ------
        ValueError
            If it holds other sums than this history, or the method keeps none. The state is then unchanged.
        """
        with self.lock:
            make_changes([self.merged(delta)])

    def merged(self, delta: HistoryDelta) -> Change:
        """`merge` without its effect."""
        held = self.held
        state = self.plan.order.merged(held.state, self.plan.serving, delta)
        return Change(self.cell, held._replace(state=state))

    def take_delta(self) -> HistoryDelta:
        """What `step` and `observe` have recorded since the last call, for others to `merge`.

        Where it may be lost on its way, take `pending_delta` and `acknowledge`.

        Raises
        ------
        ValueError
            If the estimator was not made with ``keep_deltas=True``.
        """
        with self.lock:
            held = self.held
            delta = concat(held.kept_deltas("take_delta"), held.state.last_step)
            self._change(held._replace(deltas=()))
            return delta

    def pending_delta(self) -> HistoryDelta:
        """What `take_delta` would give; it stays until others `acknowledge` it.

        Raises
        ------
        ValueError
            As `take_delta`.
        """
        with self.lock:
            return concat(self.held.kept_deltas("pending_delta"), self.last_step)

    def acknowledge(self, origins: Iterable[Origin]) -> None:
        """Drop what all others hold from what is still to be sent.

        Parameters
        ----------
        origins : iterable of (str, int)
            Those of the delta that they merged (`HistoryDelta.origins`), or some of them.

        Raises
        ------
        ValueError
            As `take_delta`.
        """
        held_elsewhere = frozenset(origins)
        with self.lock:
            held = self.held
            parts = (delta.without(held_elsewhere) for delta in held.kept_deltas("acknowledge"))
            self._change(held._replace(deltas=tuple(part for part in parts if part.origins)))

    @property
    def received(self) -> Received:
        """The numbers of all deltas that this estimator holds, its own among them."""
        return self.held.state.received

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data (arrays as bytes), for a trainer's checkpoint.

        It survives pickle and ``torch.save`` with ``torch.load(weights_only=True)``.
        """
        return self.state_snapshot()()

    def state_snapshot(self) -> Callable[[], dict[str, Any]]:
        """`state_dict` as of now, for when it is called: a step then pays for a copy of the arrays alone."""
        with self.lock:
            plain = snapshot(self.held)
        return lambda: pack_arrays(plain())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state from `state_dict`; the estimator must have been built with the same method.

        Raises
        ------
        ValueError
            If the state belongs to another method or does not fit together. The estimator is then unchanged.
        """
        with self.lock:
            make_changes([self.taken(state)])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write method, parameters and state to one file, atomically and without pickle.

        Raises
        ------
        TypeError
            If a parameter (a kernel function of your own) or a prompt id cannot be stored.
        """
        save_state(path, self.content())

    def content(self) -> dict[str, Any]:
        """What `save` writes."""
        with self.lock:
            held = self.held
            state = snapshot(held)
        return {"estimator": held.plan.plain(), "state": state()}

    def taken(self, state: dict[str, Any]) -> Change:
        """`load_state_dict` without its effect."""
        self.sender = Sender()  # numbers after those of the state may have been given already
        return Change(self.cell, loaded(unpack_arrays(state), self.plan, self.sender))

    def _change(self, after: Held) -> None:
        make_changes([Change(self.cell, after)])
