"""Warnings of a step: the history or the groups are useless, or a prior does not fit the run."""

from dataclasses import replace

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.samples import Samples
from kaestat.core.seen_rewards import ENOUGH, SeenRewards
from kaestat.core.spelling import counted
from kaestat.estimator.plan import Plan
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.step import StepRecord
from kaestat.history.prior import Prior


def step_warnings(
    plan: Plan, before: EstimatorState, after: EstimatorState, samples: Samples, record: StepRecord
) -> tuple[EstimatorState, list[str]]:
    """The state after a step, which remembers what was said once, and the warnings of the step."""
    texts, warned = [], after.warned
    if plan.horizon > 0 and not before.returns.judged:
        returns, text = before.returns.after(plan.method, plan.baseline, record.visits)
        texts += [text, unmet_prior(before.priors, record), alien_prior(before.priors, record)]
        after = replace(after, returns=returns)
    once = {"alone": alone(plan, record), "far": far_outside(plan, before.seen, samples)}
    for name, text in (once | {"wide": wide_range(plan, after.seen)}).items():
        if text is not None and name not in warned:
            texts, warned = [*texts, text], warned | {name}
    return replace(after, warned=warned), [text for text in texts if text is not None]


def alone(plan: Plan, record: StepRecord) -> str | None:
    """The warning if no group has more than one completion, for a method without a history that needs more."""
    return None if plan.horizon > 0 else needs_others(plan.method, plan.baseline, record.groups.reward.shape[1])


def needs_others(method: str, baseline: Baseline, largest: int) -> str | None:
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


def alien_prior(priors: tuple[Prior, ...], record: StepRecord) -> str | None:
    """The warning if rewards of the first step leave [0, 1], and a prior has rewards 0 and 1 alone."""
    reward = record.groups.reward  # 0 in the padding
    low, high = float(reward.min(initial=0.0)), float(reward.max(initial=1.0))
    of_rates = any(each.prompt_ids and (each.sums["total_sq"] == each.sums["total"]).all() for each in priors)
    if not of_rates or (low, high) == (0.0, 1.0):
        return None
    return (
        f"prior: it holds rewards of 0 and 1 alone, but the first step has one of {low if low < 0 else high:g}; give "
        "the two rewards of its rates as low= and high= to Prior.of_mapping, of_rates, of_table or read, or rewards "
        "to Prior.of_rewards."
    )


def far_outside(plan: Plan, seen: SeenRewards, samples: Samples) -> str | None:
    """The warning for a reward far outside those so far, where prompts share what is learned from it."""
    reward, counted_as = samples.reward, seen.bounded(samples.reward)
    if counted_as is reward or not plan.watches_rewards or isinstance(plan.baseline, RangedBaseline):
        return None
    at = int(np.argmax(np.abs(reward - counted_as)))
    effect = "it is part of the values of all prompts of this step"
    if plan.bounds_rewards:
        effect = f"it counts as {counted_as[at]:g} in values, but in full in its own advantage"
    return (
        f"{plan.method}: reward {reward[at]:g} of prompt {samples.packing.keys[samples.packing.codes[at]]!r} lies far "
        f"outside those so far, {seen.low:g} to {seen.high:g}; {effect}. Clip rewards to the range that they should "
        "have, where they are made."
    )


def wide_range(plan: Plan, seen: SeenRewards) -> str | None:
    """The warning once the rewards so far differ, but by less than half of the range that a method takes for theirs."""
    baseline = plan.baseline
    if not isinstance(baseline, RangedBaseline) or seen.count < ENOUGH:
        return None
    if not 0 < seen.high - seen.low < 0.5 * (baseline.high - baseline.low):
        return None
    return (
        f"{plan.method}: the rewards so far lie between {seen.low:g} and {seen.high:g}, and its range is "
        f"[{baseline.low:g}, {baseline.high:g}], so it takes their noise for larger than it is. If they have another "
        "range, give it as low= and high=."
    )
