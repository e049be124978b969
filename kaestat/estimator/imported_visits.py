"""Visits that an estimator has not made itself: those of a prior, and those of other workers."""

from __future__ import annotations

import os
import secrets
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kaestat.baselines.base import Baseline
from kaestat.estimator.default_method import DefaultMethod
from kaestat.estimator.held_state import Change, Held, make_changes
from kaestat.estimator.record import StepRecord
from kaestat.estimator.steps import any_order
from kaestat.estimator.steps.opening import check_prior, with_prior
from kaestat.estimator.steps.serving import Serving
from kaestat.history.delta import HistoryDelta, concat
from kaestat.history.prior import Prior, as_prior
from kaestat.history.received_deltas import Origin, Received


class ImportedVisits(DefaultMethod):
    """The part of `kaestat.AdvantageEstimator` that takes visits from elsewhere."""

    method: str
    baseline: Baseline
    order: str
    scale: str
    objective: str

    @property
    def priors(self) -> tuple[Prior, ...]:
        """What the history is to begin with; empty once a step has been recorded, when it holds their visits."""
        return self._state.priors

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
            If it is no prior.

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
            held = self.settle()
            after = held._replace(state=with_prior(held.state, self.baseline, known))
            make_changes([Change(self, held, after)])

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
        self._any_order_only("merge")
        held = self.settle()
        return Change(self, held, held._replace(state=any_order.merge(held.state, self._serving, delta)))

    def take_delta(self) -> HistoryDelta:
        """What `step` and `observe` have recorded since the last call, for others to `merge`.

        Where it may be lost on its way, take `pending_delta` and `acknowledge`.

        Raises
        ------
        ValueError
            If the estimator was not made with ``keep_deltas=True``.
        """
        with self.lock:
            held, deltas = self._kept_deltas("take_delta")
            delta = concat(deltas, self.last_step)
            make_changes([Change(self, held, held._replace(deltas=()))])
            return delta

    def pending_delta(self) -> HistoryDelta:
        """What `take_delta` would give; it stays until others `acknowledge` it.

        Raises
        ------
        ValueError
            As `take_delta`.
        """
        with self.lock:
            return concat(self._kept_deltas("pending_delta")[1], self.last_step)

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
            held, deltas = self._kept_deltas("acknowledge")
            left = tuple(part for part in (delta.without(held_elsewhere) for delta in deltas) if part.origins)
            make_changes([Change(self, held, held._replace(deltas=left))])

    @property
    def received(self) -> Received:
        """The numbers of all deltas that this estimator holds, its own among them."""
        return self._state.received

    def _kept_deltas(self, name: str) -> tuple[Held, tuple[HistoryDelta, ...]]:
        held = self.settle()
        if held.deltas is None:
            raise ValueError(f"{name}: what comes in is kept only by an estimator made with keep_deltas=True.")
        return held, held.deltas

    def _keeping(self, held: Held, deltas: tuple[HistoryDelta, ...], delta: HistoryDelta) -> Held:
        """With one more delta to be sent, under the next number."""
        origin = held.state.received.next_of(self._sender())
        state = replace(held.state, received=held.state.received.joined([origin]))
        return held._replace(state=state, deltas=(*deltas, delta.from_sender(origin)))

    def _sender(self) -> str:
        """The name under which this object, in this process, numbers its deltas.

        Copies, forks and estimators that are loaded get names of their own: two that counted on under one name would
        give one number to two deltas, and one of them would be lost.
        """
        process, name = vars(self).get("_named_sender", (None, ""))
        if process != os.getpid():
            name = secrets.token_hex(8)
            self._named_sender = (os.getpid(), name)
        return name

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As `Locked`, under a new name as a sender."""
        super().__setstate__({name: value for name, value in state.items() if name != "_named_sender"})

    def _any_order_only(self, name: str) -> None:
        if self.order != "any":
            raise ValueError(f'{name}: this estimator takes steps in order; make it with order="any".')

    @property
    def _serving(self) -> Serving:
        return Serving(self.method, self.baseline, self.scale, self.objective)


def unmet_prior(priors: tuple[Prior, ...], record: StepRecord) -> str | None:
    """The warning if no prompt of the first step has a prior: then their ids are hardly those of the run."""
    known = [key for prior in priors for key in prior.prompt_ids]
    if not known or not set(known).isdisjoint(record.packing.keys):
        return None
    return (
        f"prior: none of the {len(record.packing.keys):,} prompts of the first step has one. An id of the prior is "
        f"{known[0]!r}, one of the step {record.packing.keys[0]!r}: they must be of the same kind."
    )
