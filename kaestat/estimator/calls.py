"""What the calls of an estimator change, computed before they change anything."""

from __future__ import annotations

from typing import Any, Literal

from kaestat.core.digits import lost_digits_of
from kaestat.core.samples import StepSamples, as_type_of, largest_like
from kaestat.estimator.held_state import Answer, Call, Change, Held
from kaestat.estimator.plan import Plan
from kaestat.estimator.prompt_values import PromptValues
from kaestat.estimator.record import StepRecord
from kaestat.estimator.steps.order import Outcome, advance
from kaestat.history.prior import Prior


def recording(
    estimator: PromptValues,
    name: Literal["step", "observe"],
    call: Call,
    samples: StepSamples,
    step: int,
    template: Any,
) -> Change:
    """`AdvantageEstimator.step` or ``observe``; the estimator's values are of the template's type."""
    held, plan, largest = estimator.held, estimator.plan, largest_like(template)
    if held.answer is not None and held.answer.is_repeated(name, samples, step):
        answer = held.answer._replace(call=call)
        after = held._replace(answer=answer)
        return Change(estimator.cell, after, answer.advantages, answer.values, repeats=held.answer.call)
    if name == "step":
        outcome = advance(plan.order, held.state, plan.serving, samples, step, largest)
    else:
        outcome = plan.order.observe(held.state, plan.serving, samples, step, largest)
    advantages, values = outcome.of_all(samples)
    after, warnings = _watched(held, plan, outcome, samples)
    if name == "step":
        after = after._replace(record=outcome.record, values=as_type_of(values, template))
    answer = Answer(call, name, step, samples.copied(), advantages, values)
    after = after.keeping(outcome.delta, estimator.sender)._replace(answer=answer)
    return Change(estimator.cell, after, advantages, values, warnings=warnings)


def asking(estimator: PromptValues, samples: StepSamples, now: int, template: Any) -> Change:
    """`AdvantageEstimator.advantages`."""
    held, plan = estimator.held, estimator.plan
    outcome = plan.order.advantages(held.state, plan.serving, samples, now, largest_like(template))
    advantages, values = outcome.of_all(samples)
    told_late, late = _lateness(held, plan, outcome, samples)
    after = held._replace(record=outcome.record, values=as_type_of(values, template), told_late=told_late)
    return Change(estimator.cell, after, advantages, values, warnings=(*late, *_digits(plan, outcome.record)))


def _watched(held: Held, plan: Plan, outcome: Outcome, samples: StepSamples) -> tuple[Held, tuple[str, ...]]:
    """The state after a call that records, and warnings about its prompts."""
    record, returns, said = outcome.record, held.returns, None
    if record is None:
        return held._replace(state=outcome.state), ()
    if outcome.state.history is not None:
        returns = returns.copied()
        said = returns.see(plan.order.newest(record.visits))
    told_late, late = _lateness(held, plan, outcome, samples)
    unmet = unmet_prior(held.state.priors, record)
    warnings = (*(text for text in (said, unmet) if text is not None), *late, *_digits(plan, record))
    return held._replace(state=outcome.state, returns=returns, told_late=told_late), warnings


def _lateness(held: Held, plan: Plan, outcome: Outcome, samples: StepSamples) -> tuple[bool, tuple[str, ...]]:
    """Whether the user knows of late completions after this call, and the warning if it is due now."""
    if held.told_late or outcome.record is None:
        return held.told_late, ()
    said = plan.order.too_late(held.state, plan.serving.method, samples, outcome.record)
    return said is not None, () if said is None else (said,)


def _digits(plan: Plan, record: StepRecord | None) -> tuple[str, ...]:
    """The warning if the rewards of a method with a history leave too few digits."""
    if record is None or plan.serving.baseline.horizon == 0:
        return ()
    lost = lost_digits_of(record.groups, record.visits)
    return () if lost is None else (f"{plan.serving.method}: {lost}",)


def unmet_prior(priors: tuple[Prior, ...], record: StepRecord) -> str | None:
    """The warning if no prompt of the first step has a prior: then their ids are hardly those of the run."""
    known = [key for prior in priors for key in prior.prompt_ids]
    if not known or not set(known).isdisjoint(record.packing.keys):
        return None
    return (
        f"prior: none of the {len(record.packing.keys):,} prompts of the first step has one. An id of the prior is "
        f"{known[0]!r}, one of the step {record.packing.keys[0]!r}: they must be of the same kind."
    )
