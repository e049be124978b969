"""The calls of an estimator, computed before they change anything."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np

from kaestat.core.arrays import Array, Groups
from kaestat.core.checks import whole_step
from kaestat.core.digits import lost_digits_of
from kaestat.core.samples import Packing, StepSamples, as_type_of, largest_like, scatter
from kaestat.estimator.held_state import Answer, Call, Change, Held, make_changes
from kaestat.estimator.imported_visits import ImportedVisits, unmet_prior
from kaestat.estimator.record import StepRecord
from kaestat.estimator.steps import any_order, strict_order
from kaestat.estimator.steps.serving import Outcome

LARGEST = float(np.finfo(np.float64).max)


class PreparedCalls(ImportedVisits):
    """The part of `kaestat.AdvantageEstimator` that computes its calls."""

    def recorded(
        self,
        name: Literal["step", "observe"],
        call: Call,
        prompt_ids: Sequence[Hashable],
        rewards: Any,
        step: int,
        *columns: Any,
    ) -> Array:
        """`step` or `observe` as a part of a call that does more.

        Until the call is finished, the same arguments are taken for a repetition of it: they give the same result, and
        nothing is recorded again.

        Parameters
        ----------
        name : {"step", "observe"}
        call : Call
            The caller finishes it (`Call.finish`).
        prompt_ids, rewards, step, *columns
            As there, the columns in their order.
        """
        with self.lock:
            change = self.prepared(name, call, prompt_ids, rewards, step, *columns)
            make_changes([change], stacklevel=4)
        return as_type_of(change.advantages, rewards)

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
        """`step` or `observe` without its effect, for `kaestat.estimator.held_state.make_changes`.

        Parameters
        ----------
        name, call, prompt_ids, rewards, step, *columns
            As `recorded`.
        template : array, optional
            The estimator's `values` are of its type; None for the type of the rewards.
        """
        step, samples, held = whole_step(step), self._samples(prompt_ids, rewards, *columns), self.settle()
        if held.answer is not None and held.answer.is_repeated(name, samples, step):
            answer = held.answer._replace(call=call)
            after = held._replace(answer=answer)
            return Change(self, held, after, answer.advantages, answer.values, repeats=held.answer.call)
        template, delta = rewards if template is None else template, None
        largest = largest_like(template)
        if self.order == "strict":
            outcome = strict_order.advance(held.state, self._serving, samples, step, largest)
        elif name == "step":
            outcome, delta = any_order.advance(held.state, self._serving, samples, step, largest)
        else:
            outcome, delta = any_order.observe(held.state, self._serving, samples, step)
        advantages, values = _of_all(outcome, samples)
        after, warnings = self._watched(held, outcome, samples)
        if name == "step":
            after = after._replace(record=outcome.record, values=as_type_of(values, template))
        if held.deltas is not None and delta is not None:
            after = self._keeping(after, held.deltas, delta)
        answer = Answer(call, name, step, samples.copied(), advantages, values)
        return Change(self, held, after._replace(answer=answer), advantages, values, warnings=warnings)

    def followed(self, samples: StepSamples, packed: tuple[Packing, Groups], step: int) -> Outcome:
        """What `step` does with samples that are checked and packed already, as several estimators share them.

        In strict order, without a mask. It returns no array of the caller's type, and the same call made again after
        an interrupt is refused.

        Parameters
        ----------
        samples : StepSamples
            By stream where the baseline's unit is the group.
        packed : Packing and Groups
            What `kaestat.estimator.steps.serving.grouped` makes of them.
        step : int
        """
        with self.lock:
            held = self.settle()
            outcome = strict_order.advance(held.state, self._serving, samples, step, LARGEST, packed)
            after, warnings = self._watched(held, outcome, samples)
            after = after._replace(record=outcome.record, values=outcome.values, answer=None)
            make_changes([Change(self, held, after, warnings=warnings)])
        return outcome

    def _asked(self, samples: StepSamples, now: int, rewards: Any) -> Change:
        """`advantages` without its effect."""
        held = self.settle()
        outcome = any_order.advantages(held.state, self._serving, samples, now, largest_like(rewards))
        advantages, values = _of_all(outcome, samples)
        told_late, late = self._lateness(held, outcome, samples)
        after = held._replace(record=outcome.record, values=as_type_of(values, rewards), told_late=told_late)
        return Change(self, held, after, advantages, values, warnings=(*late, *self._digits(outcome.record)))

    def _watched(self, held: Held, outcome: Outcome, samples: StepSamples) -> tuple[Held, tuple[str, ...]]:
        """The state after a call that records, and warnings about its prompts."""
        record, returns, said = outcome.record, held.returns, None
        if record is None:
            return held._replace(state=outcome.state), ()
        if outcome.state.history is not None:
            returns = returns.copied()
            said = returns.see(any_order.newest(record.visits) if self.order == "any" else record.visits)
        told_late, late = self._lateness(held, outcome, samples)
        unmet = unmet_prior(held.state.priors, record)
        warnings = (*(text for text in (said, unmet) if text is not None), *late, *self._digits(record))
        return held._replace(state=outcome.state, returns=returns, told_late=told_late), warnings

    def _lateness(self, held: Held, outcome: Outcome, samples: StepSamples) -> tuple[bool, tuple[str, ...]]:
        """Whether the user knows of late completions after this call, and the warning if it is due now."""
        if held.told_late or outcome.record is None:
            return held.told_late, ()
        packing, step = outcome.record.packing, outcome.record.step
        said = any_order.too_late(held.state, self.method, samples, packing, step)
        return said is not None, () if said is None else (said,)

    def _digits(self, record: StepRecord | None) -> tuple[str, ...]:
        """The warning if the rewards of a method with a history leave too few digits."""
        if record is None or self.baseline.horizon == 0:
            return ()
        lost = lost_digits_of(record.groups, record.visits)
        return () if lost is None else (f"{self.method}: {lost}",)

    def _samples(self, *given: Any) -> StepSamples:
        samples = StepSamples.of(*given, by_stream=self.baseline.unit == "group")
        if self._by_default and samples.weighting != "none":
            self._hand_over(f"completions come with {samples.weighting.replace('+', ' and ')}")
        if samples.version is not None:
            self._any_order_only("version")
        return samples


def _of_all(outcome: Outcome, samples: StepSamples) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and values of all samples that were given, 0 where masked."""
    return scatter(outcome.advantages, samples.keep), scatter(outcome.values, samples.keep)
