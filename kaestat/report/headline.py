"""The main finding of an analysis as advice: what to use, its benefit, and the lines to paste."""

import math
from collections.abc import Iterator

from kaestat.core.spelling import counted
from kaestat.report.analysis import Analysis
from kaestat.report.gradient_text import on_history, on_weights
from kaestat.report.sampling import SAMPLING_LINE, on_sampling
from kaestat.report.setting import IN_STEPS

RIVALS = {"grpo": "GRPO's group mean", "reinforce++": "REINFORCE++'s batch mean"}  # both leave the completion out
NAMED = 4  # tied rows; the others are counted
FEW_PROMPTS = 40  # with fewer, an interval over prompts says little about how large a reduction is
NEARLY_ALL = 0.99  # an unbiased estimate of a small error may be negative: such a reduction is not a number to quote


def headline(analysis: Analysis) -> str:
    """What to use and its benefit, in a few sentences."""
    return " ".join(headline_parts(analysis))


def headline_parts(analysis: Analysis) -> list[str]:
    """The headline by subject: value, gradient, history, sampling; gradient first if values do not suffice."""
    parts, gradient = [" ".join(_on_value(analysis))], analysis.gradient
    if gradient is not None:
        weighing = on_weights(gradient, analysis.facts)
        if gradient.matter or gradient.misled:
            parts = [weighing, f"By the value alone: {parts[0]}"]
        else:
            parts.append(weighing)
        parts.append(on_history(gradient))
    if analysis.sampling is not None:
        parts.append(on_sampling(analysis.sampling, analysis.facts))
    return list(filter(None, parts))


def _on_value(analysis: Analysis) -> Iterator[str]:
    best, facts = analysis.recommendation, analysis.facts
    rival = RIVALS[best.rival]
    if _all_alike(analysis):
        yield (
            f"All rewards that can be compared are {facts.reward_end:g}: no baseline matters, and these prompts have "
            "nothing left to teach. Retire them, or check the reward function."
        )
        return
    if facts.return_gap is None and facts.group_size[1] == 1:
        yield (
            "Every prompt occurs once, with one completion. If that is wrong, your ids differ from completion to "
            "completion: give each the id of its prompt."
        )
    elif facts.return_gap is None:
        yield "Every prompt occurs once: a history cannot help."
    setting = best.in_words(facts.time_axis) if best.method else best.row
    if best.better:
        yield f"Use {setting}: {_worth(analysis)} than that of {rival}."
        yield from _details(analysis)
    elif _has_method(analysis):
        which = counted(best.n_prompts, "prompt")
        if best.n_prompts < facts.n_prompts:
            which += f" of {facts.n_prompts:,} can be scored"
        yield (
            f"Use {setting}: this log ({which}) is too small to show which method has the lowest value error (MSE), "
            f"or a lower one than {rival}."
        )
    elif math.isnan(best.difference[1]):
        yield f"Keep {rival}: with one prompt there are no intervals, and no method is shown to have a lower error."
    else:
        yield f"Keep {rival}: its value error (MSE) and that of {setting} differ by less than a tenth."


def _details(analysis: Analysis) -> Iterator[str]:
    """What qualifies a recommendation that is shown to be better than the rival."""
    best = analysis.recommendation
    if _one_sided(analysis):
        yield "The log is too small to say how much lower."
    if best.row != best.lowest:
        yield f"{best.lowest} has the lowest error here, but the log cannot tell the two apart."
    elif best.tied:
        more = f" and {len(best.tied) - NAMED} more" if len(best.tied) > NAMED else ""
        yield f"The log cannot tell it apart from {', '.join(best.tied[:NAMED])}{more}."
    if not math.isnan(best.noise_reduction) and analysis.gradient is None:  # else it is measured
        variance = "p(1-p)" if analysis.facts.binary else "the reward variance"
        yield (
            f"The noise of the gradient per completion, {variance} + MSE, falls by {_percent(best.noise_reduction)} if "
            "completions have equal score norms."
        )
    if analysis.risk is None:
        yield "With one completion per visit only differences of errors are known, not the errors themselves."


def _all_alike(analysis: Analysis) -> bool:
    """Whether all rewards of groups are the same number, at the start and at the end."""
    facts = analysis.facts
    return facts.dead_groups == 1 and facts.reward_start == facts.reward_end


def _has_method(analysis: Analysis) -> bool:
    """Whether there is a method to set up: better than the rival, or not shown to be level with it."""
    best = analysis.recommendation
    if not best.method or _all_alike(analysis):
        return False
    return best.better or not (best.level or math.isnan(best.difference[1]))


def _one_sided(analysis: Analysis) -> bool:
    """Whether only the lower end of the reduction is worth a number."""
    best = analysis.recommendation
    return best.n_prompts < FEW_PROMPTS or max(best.reduction[0], best.reduction[2]) >= NEARLY_ALL


def stated_reduction(analysis: Analysis) -> tuple[float, float] | None:
    """Ends of the reduction of the MSE in the headline, the upper one infinite if unstated; None for no reduction."""
    best = analysis.recommendation
    if not best.better or math.isnan(best.reduction[0]) or not best.reduction[1] > 0:
        return None
    if _one_sided(analysis):
        return math.floor(100 * min(best.reduction[1], NEARLY_ALL)) / 100, math.inf
    return best.reduction[1], best.reduction[2]


def _worth(analysis: Analysis) -> str:
    """How much lower the MSE is, with its interval; the lower end alone where no more can be said."""
    best, unit = analysis.recommendation, analysis.unit
    stated = stated_reduction(analysis)
    if stated is None:
        difference = f"{unit.number(-best.difference[0])}{unit.times}"
        if not math.isnan(best.difference[1]):
            difference += f" (95 % interval {unit.interval(-best.difference[2], -best.difference[1])})"
        return f"its value error (MSE) is lower by {difference}"
    low, high = stated
    if math.isinf(high):
        return f"its value error (MSE) is at least {100 * low:.0f} % lower"
    digits = 0 if high - low > 0.02 else 1
    interval = f"{100 * low:.{digits}f} to {_percent(high, digits)}"
    return f"its value error (MSE) is {_percent(best.reduction[0], digits)} (95 % interval {interval}) lower"


def paste_lines(analysis: Analysis) -> list[tuple[str, str]]:
    """The lines that set up the recommendation, each with its place; none if nothing should change."""
    sampled = analysis.sampling is not None and analysis.sampling.gains
    return _lines_of_method(analysis) + [SAMPLING_LINE] * sampled


def _lines_of_method(analysis: Analysis) -> list[tuple[str, str]]:
    axis, gradient = analysis.facts.time_axis, analysis.gradient
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
    best = analysis.recommendation
    return [("TRL, or a loop of your own", best.python_line(axis)), ("verl", best.verl_line(axis))]


def paste_notes(analysis: Analysis) -> list[str]:
    """Notes on what to fill in in the lines."""
    if not any(IN_STEPS in line for _, line in _lines_of_method(analysis)):
        return []
    gradient = analysis.gradient
    setting = gradient.setting if gradient is not None and gradient.matter else analysis.recommendation
    return [
        f"The log counts visits, but training counts steps. {IN_STEPS} is {setting.params['bandwidth']:g} times the "
        "number of steps from one visit of a prompt to the next (steps per epoch)."
    ]


def _percent(share: float, digits: int | None = None) -> str:
    if digits is None:
        digits = 0 if abs(share) >= 0.1 else 1
    return f"{100 * share:.{digits}f} %"
