"""The main finding of an analysis as advice: what to use, its benefit, and the lines to paste."""

import math
from collections.abc import Iterator, Sequence

from kaestat.core.spelling import counted
from kaestat.report.analysis import Analysis
from kaestat.report.gradient_text import on_history, on_weights
from kaestat.report.sampling import SAMPLING_LINE, on_sampling

RIVALS = {"grpo": "GRPO's group mean", "reinforce++": "REINFORCE++'s batch mean"}  # both leave the completion out
MANY_DEAD = 0.25  # of the groups
NAMED = 4  # tied rows; the others are counted
FEW_PROMPTS = 40  # with fewer, an interval over prompts says little about how large a reduction is
NEARLY_ALL = 0.99  # an unbiased estimate of a small error may be negative: such a reduction is not a number to quote


def headline(analysis: Analysis) -> str:
    """What to use and its benefit, in a few sentences."""
    return " ".join(headline_parts(analysis))


def headline_parts(analysis: Analysis) -> list[str]:
    """The headline by subject: value, gradient, history, sampling; gradient first if values do not suffice."""
    parts = [_on_value(analysis)]
    if analysis.gradient is not None:
        weighing = on_weights(analysis.gradient, analysis.facts)
        first = analysis.gradient.matter or analysis.gradient.misled
        parts = [weighing, f"By the value alone: {parts[0]}"] if first else [*parts, weighing]
        parts.append(on_history(analysis.gradient))
    sampled = [] if analysis.sampling is None else [on_sampling(analysis.sampling, analysis.facts)]
    return [part for part in (*parts, *sampled) if part]


def _on_value(analysis: Analysis) -> str:
    found, facts = analysis.recommendation, analysis.facts
    if _all_alike(analysis):
        return (
            f"All rewards that can be compared are {facts.reward_end:g}: no baseline matters, and these prompts have "
            "nothing left to teach. Retire them, or check the reward function."
        )
    once = "" if facts.return_gap is not None else "Every prompt occurs once: a history cannot help. "
    if once and facts.group_size[1] == 1:
        once = (
            "Every prompt occurs once, with one completion. If that is wrong, your ids differ from completion to "
            "completion: give each the id of its prompt. "
        )
    elif facts.group_size[1] == 1 and not facts.binary and facts.n_prompts == 1:
        once = "There is one reward per step. If it is a mean, log the reward of every completion with its prompt. "
    elif facts.mean_of is not None:
        once = (
            f"Each visit has one reward, a multiple of 1/{facts.mean_of}. If it is the mean of a group, log the reward "
            "of every completion. "
        )
    if not found.better:
        return once + (_undecided(analysis) if _has_method(analysis) else _keep(analysis))
    sentences = [f"{once}Use {_setting(analysis)}: {_worth(analysis)} than that of {RIVALS[found.rival]}."]
    if _one_sided(analysis):
        sentences.append("The log is too small to say how much lower.")
    if found.row != found.lowest:
        sentences.append(f"{found.lowest} has the lowest error here, but the log cannot tell the two apart.")
    elif found.tied:
        sentences.append(f"The log cannot tell it apart from {_in_words(found.tied)}.")
    sentences += _noise(analysis)
    if analysis.risk is None:
        sentences.append(
            "With one completion per visit only differences of errors are known, not the errors themselves."
        )
    return " ".join(sentences)


def _all_alike(analysis: Analysis) -> bool:
    """Whether all rewards of groups are the same number, at the start and at the end."""
    facts = analysis.facts
    return facts.dead_groups == 1 and facts.reward_start == facts.reward_end


def _undecided(analysis: Analysis) -> str:
    """Where the log shows neither that a method is better than the rival nor that they are level."""
    found = analysis.recommendation
    which = counted(found.n_prompts, "prompt")
    if found.n_prompts < analysis.facts.n_prompts:
        which += f" of {analysis.facts.n_prompts:,} can be scored"
    return (
        f"Use {_setting(analysis)}: this log ({which}) is too small to show which method has the lowest value error "
        f"(MSE), or a lower one than {RIVALS[found.rival]}."
    )


def _has_method(analysis: Analysis) -> bool:
    """Whether there is a method to set up: better than the rival, or not shown to be level with it."""
    found = analysis.recommendation
    return (
        bool(found.method)
        and not _all_alike(analysis)
        and (found.better or not (found.level or math.isnan(found.difference_low)))
    )


def _one_sided(analysis: Analysis) -> bool:
    """Whether only the lower end of the reduction is worth a number."""
    found = analysis.recommendation
    return found.n_prompts < FEW_PROMPTS or max(found.reduction, found.reduction_high) >= NEARLY_ALL


def stated_reduction(analysis: Analysis) -> tuple[float, float] | None:
    """Ends of the reduction of the MSE in the headline; the upper one is infinite if it states none.

    None where it states a difference of MSEs, or nothing.
    """
    found = analysis.recommendation
    if not found.better or math.isnan(found.reduction) or not found.reduction_low > 0:
        return None
    if _one_sided(analysis):
        return math.floor(100 * min(found.reduction_low, NEARLY_ALL)) / 100, math.inf
    return found.reduction_low, found.reduction_high


def _worth(analysis: Analysis) -> str:
    """How much lower the MSE is, with its interval; the lower end alone where no more can be said."""
    stated = stated_reduction(analysis)
    if stated is None:
        return f"its value error (MSE) is lower by {_difference(analysis)}"
    low, high = stated
    if math.isinf(high):
        return f"its value error (MSE) is at least {100 * low:.0f} % lower"
    digits = 0 if high - low > 0.02 else 1
    interval = f"{100 * low:.{digits}f} to {_percent(high, digits)}"
    reduction = _percent(analysis.recommendation.reduction, digits)
    return f"its value error (MSE) is {reduction} (95 % interval {interval}) lower"


def paste_lines(analysis: Analysis) -> list[tuple[str, str]]:
    """The lines that set up the recommendation, each with its place; none if nothing should change."""
    sampled = analysis.sampling is not None and analysis.sampling.gains
    return _lines_of_method(analysis) + [SAMPLING_LINE] * sampled


def _lines_of_method(analysis: Analysis) -> list[tuple[str, str]]:
    found, axis, gradient = analysis.recommendation, analysis.facts.time_axis, analysis.gradient
    if gradient is not None and gradient.matter and gradient.setting.method:
        weights = gradient.weights
        line = gradient.setting.python_line(axis, weights)
        return [
            ("TRL", f'BaselineGRPOTrainer(advantage_estimator={line}, weights="{weights}", ...)'),
            ("A loop of your own", f"{line}.step(prompt_ids, rewards, step, weights={weights}s)"),
            ("verl", gradient.setting.verl_line(axis, weights)),
        ]
    if not _has_method(analysis) or (gradient is not None and gradient.misled):
        return []
    return [("TRL, or a loop of your own", found.python_line(axis)), ("verl", found.verl_line(axis))]


def paste_notes(analysis: Analysis) -> Iterator[str]:
    """Notes on what to fill in in the lines."""
    gradient = analysis.gradient
    matter = gradient is not None and gradient.matter and bool(gradient.setting.method)
    found = gradient.setting if gradient is not None and matter else analysis.recommendation
    bandwidth = found.params.get("bandwidth")
    if analysis.facts.time_axis != "visit" or not _lines_of_method(analysis):
        return
    if isinstance(bandwidth, int | float):
        yield (
            f"The log counts visits, but training counts steps. Set bandwidth to {bandwidth:g} times the number of "
            "steps from one visit of a prompt to the next (steps per epoch)."
        )
    elif found.method == "kalman":
        yield (
            "The log counts visits, but training counts steps. Set drift_variance to its default, 0.0002, divided by "
            "the number of steps from one visit of a prompt to the next (steps per epoch)."
        )


def sampling_hint(analysis: Analysis) -> str:
    """How to analyse sampling; empty if that is done, prompts do not return, or few groups are dead."""
    dead = analysis.facts.dead_groups or 0.0
    if analysis.sampling is not None or analysis.facts.return_gap is None or dead < MANY_DEAD or _all_alike(analysis):
        return ""
    return (
        f"{_percent(dead)} of the groups were dead: kaestat analyze --sampling estimates how many completions you "
        "would save by drawing prompts by their predicted values."
    )


def _keep(analysis: Analysis) -> str:
    """Where nothing is shown to be better than what everybody has."""
    found = analysis.recommendation
    rival = RIVALS[found.rival]
    if math.isnan(found.difference_low):
        return f"Keep {rival}: with one prompt there are no intervals, and no method is shown to have a lower error."
    return f"Keep {rival}: its value error (MSE) and that of {_setting(analysis)} differ by less than a tenth."


def _setting(analysis: Analysis) -> str:
    found = analysis.recommendation
    return found.in_words(analysis.facts.time_axis) if found.method else found.row


def _difference(analysis: Analysis) -> str:
    found, unit = analysis.recommendation, analysis.unit
    told = f"{unit.number(-found.difference)}{unit.times}"
    if math.isnan(found.difference_low):
        return told
    return f"{told} (95 % interval {unit.interval(-found.difference_high, -found.difference_low)})"


def _noise(analysis: Analysis) -> Iterator[str]:
    found = analysis.recommendation
    if math.isnan(found.noise_reduction) or analysis.gradient is not None:  # then it is measured
        return
    variance = "p(1-p)" if analysis.facts.binary else "the reward variance"
    told = f"The noise of the gradient per completion, {variance} + MSE, falls by {_percent(found.noise_reduction)}"
    if math.isnan(found.mse_share) or _one_sided(analysis):
        yield f"{told} if completions have equal score norms."
        return
    yield (
        f"{told} if completions have equal score norms: the MSE falls from {found.rival_mse_share:.2g} to "
        f"{found.mse_share:.2g} times {variance}."
    )


def _percent(share: float, digits: int | None = None) -> str:
    if digits is None:
        digits = 0 if abs(share) >= 0.1 else 1
    return f"{100 * share:.{digits}f} %"


def _in_words(rows: Sequence[str]) -> str:
    if len(rows) > NAMED:
        return f"{', '.join(rows[:NAMED])} and {len(rows) - NAMED} more"
    return ", ".join(rows)
