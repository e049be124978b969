"""What a call of an estimator is to leave and to give, worked out while nothing is changed."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from kaestat.arrays import Array, Visits
from kaestat.held_state import Answer, Call, Change, Held, take_over
from kaestat.history import whole_step
from kaestat.imported_visits import ImportedVisits, warn_of_unmet
from kaestat.reach import ReturnWatch
from kaestat.samples import StepSamples, largest_like, like, scatter
from kaestat.steps import any_order, strict_order
from kaestat.steps.serving import Outcome


class PreparedCalls(ImportedVisits):
    """What `kaestat.AdvantageEstimator` does before a call changes it."""

    _told_late: bool

    def _samples(self, *given: Any) -> StepSamples:
        samples = StepSamples.of(*given, by_stream=self.baseline.unit == "group")
        if samples.version is not None:
            self._any_order_only("version")
        return samples

    def recorded(
        self,
        name: Literal["step", "observe"],
        call: Call,
        prompt_ids: Sequence[Hashable],
        rewards: Any,
        step: int,
        *columns: Any,
    ) -> Array:
        """`step` or `observe` for a caller that has more to do before its own call is finished.

        Until then the same call is taken for the same one again: it is answered, and nothing is recorded.

        Parameters
        ----------
        name : {"step", "observe"}
        call : Call
            Of the caller, whose last act is `Call.finish`.
        prompt_ids, rewards, step, *columns
            As there, the columns in their order.
        """
        with self.lock:
            change = self.prepared(name, call, prompt_ids, rewards, step, *columns)
            take_over([change])
            self.warn_of(change)
        return change.advantages

    def prepared(
        self,
        name: Literal["step", "observe"],
        call: Call,
        prompt_ids: Sequence[Hashable],
        rewards: Any,
        step: int,
        *columns: Any,
        template: Any = None,
    ) -> Change:
        """What `step` or `observe` is to leave and to give; nothing is changed. For `kaestat.held_state.take_over`.

        Parameters
        ----------
        name : {"step", "observe"}
        call : Call
            Of the caller.
        prompt_ids, rewards, step, *columns
            As there, the columns in their order.
        template : array, optional
            In whose type advantages and values are given; None for that of the rewards.
        """
        step, samples = whole_step(step), self._samples(prompt_ids, rewards, *columns)
        template, held = rewards if template is None else template, self._held
        if held.answer is not None and held.answer.is_to(name, samples, step):
            answer = held.answer._replace(call=call)
            outcome, after = answer.outcome, held._replace(answer=answer)
        else:
            outcome, after = self._advanced(name, samples, step, largest_like(template))
            answer = Answer(call, name, step, samples.copied(), outcome)
            values = held.values if name == "observe" else as_given(outcome.values, samples, template)
            after = after._replace(values=values, answer=answer)
        return Change(self, held, after, samples, outcome, as_given(outcome.advantages, samples, template))

    def _advanced(self, name: str, samples: StepSamples, step: int, largest: float) -> tuple[Outcome, Held]:
        """What the samples give, and what is held after them but for values and answer."""
        held, serving, delta = self._held, self._serving, None
        returns = held.returns.copied()
        if self.order == "any" and name == "observe":
            outcome, delta = any_order.observe(held.state, serving, samples, step)
        elif self.order == "any":
            watch = partial(self._watch_returns, returns)
            outcome, delta = any_order.advance(held.state, serving, samples, step, largest, watch)
        else:
            outcome = strict_order.advance(
                held.state, serving, samples, step, largest, partial(self._watch_returns, returns)
            )
        record = held.record if name == "observe" else outcome.record
        deltas = held.deltas if held.deltas is None or delta is None else (*held.deltas, delta)
        return outcome, Held(outcome.state, returns, record, deltas=deltas)

    def warn_of(self, change: Change) -> None:
        """Say what is to be said of a call once it has been recorded."""
        before, outcome = change.before.state, change.outcome
        if outcome is None or outcome.record is None or change.samples is None:
            return
        if before.priors and change.after.state.history is not None:
            warn_of_unmet(before.priors, outcome.record)
        said = None
        if not self._told_late:
            record = outcome.record
            said = any_order.too_late(before, self.method, change.samples, record.packing, record.step)
        if said is not None:
            self._told_late = True
            warnings.warn(said, stacklevel=4)

    def _watch_returns(self, returns: ReturnWatch, visits: Visits) -> None:
        useless = returns.see(visits)
        if useless is not None:
            warnings.warn(useless, stacklevel=7)


def as_given(of_samples: np.ndarray, samples: StepSamples, template: Any) -> Array:
    """One number for each sample, as the rewards were given."""
    return like(scatter(of_samples, samples.keep), template)
