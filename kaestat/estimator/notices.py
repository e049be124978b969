"""Warnings of an estimator: history or groups are useless, no prior matched, samples are late."""

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.digits import lost_digits_of
from kaestat.core.samples import StepSamples
from kaestat.core.spelling import counted
from kaestat.estimator.held_state import Held
from kaestat.estimator.record import StepRecord
from kaestat.estimator.steps.call import Outcome
from kaestat.history.history import RewardHistory
from kaestat.history.prior import Prior


def noticed(held: Held, outcome: Outcome, samples: StepSamples, *, new: bool) -> tuple[Held, tuple[str, ...]]:
    """The state after a call, and its warnings; ``new`` if the call recorded its samples."""
    order, serving, record = held.plan.order, held.plan.serving, outcome.record
    after = held._replace(state=outcome.state)
    if record is None:
        return after, ()
    returns, said = held.returns, None
    if new and outcome.state.history is not None:
        returns = returns.copied()
        newest = order.newest(record.visits)
        said = returns.see(newest.lag[:, -1][newest.count[:, -1] > 0])
    unmet = unmet_prior(held.state.priors, record) if new else None
    alien = alien_prior(held.state.priors, record, None) if new else None
    late = None if held.told_late else order.too_late(held.state, serving.method, samples, record)
    alone = None if held.told_alone else needs_others(serving.method, serving.baseline, record.groups.count.max())
    lost = None if serving.baseline.horizon == 0 else lost_digits_of(record.groups, record.visits)
    texts = said, unmet, alien, late, alone, None if lost is None else f"{serving.method}: {lost}"
    told_late, told_alone = held.told_late or late is not None, held.told_alone or alone is not None
    after = after._replace(returns=returns, told_late=told_late, told_alone=told_alone)
    return after, tuple(text for text in texts if text is not None)


def needs_others(method: str, baseline: Baseline, largest: float) -> str | None:
    """Why a method does not suit groups of which the largest has so many completions; None if it does."""
    if largest != 1 or not baseline.alone:
        return None
    return (
        f"{method}: no group has more than one completion, and the advantage of a lone one is {baseline.alone}. "
        f"Sample two or more of each prompt, or take a method that needs no group, such as {DEFAULT_METHOD!r}."
    )


def unmet_prior(priors: tuple[Prior, ...], record: StepRecord) -> str | None:
    """The warning if no prompt of the first step has a prior: its ids are then probably not those of the run."""
    known = [key for prior in priors for key in prior.prompt_ids]
    if not known or not set(known).isdisjoint(record.packing.keys):
        return None
    return (
        f"prior: the first step has {counted(len(record.packing.keys), 'prompt')}, none with one. An id of the prior "
        f"is {known[0]!r}, one of the step {record.packing.keys[0]!r}: they must be of the same kind."
    )


def alien_prior(priors: tuple[Prior, ...], record: StepRecord | None, history: RewardHistory | None) -> str | None:
    """The warning if rewards of the first step, or past ones, leave [0, 1], and a prior has rewards 0 and 1 alone."""
    if not any(each.prompt_ids and (each.sums["total_sq"] == each.sums["total"]).all() for each in priors):
        return None
    found = None
    if record is not None:
        reward = record.groups.reward  # 0 in the padding
        low, high = float(reward.min(initial=0.0)), float(reward.max(initial=1.0))
        found = None if (low, high) == (0.0, 1.0) else f"the first step has one of {low if low < 0 else high:g}"
    elif history is not None:
        total, squares = (history.columns.fields[name] for name in ("total", "total_sq"))
        found = "the run has had some outside [0, 1]" if (squares > total + 1e-6 * squares).any() else None
    return found and (
        f"prior: it holds rewards of 0 and 1 alone, but {found}; give the two rewards of its rates as low= and high= "
        "to Prior.of_mapping, of_rates, of_table or read, or rewards to Prior.of_rewards."
    )
