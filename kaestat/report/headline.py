"""The main finding of an analysis as an instruction: what to use, what it is worth, and the lines to paste."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kaestat.report.analysis import Analysis
from kaestat.report.gradient_text import on_history, on_weights
from kaestat.report.sampling import SAMPLING_LINE, on_sampling
from kaestat.report.setting import VERL_WEIGHTS
from kaestat.report.tables import unit_of

RIVALS = {"grpo": "GRPO's group mean", "reinforce++": "REINFORCE++'s batch mean"}  # both leave the completion out
MANY_DEAD = 0.25  # of the groups
NAMED = 4  # tied rows; the others are counted


def headline(analysis: Analysis) -> str:
    """What to use and what it is worth, in a few sentences."""
    return " ".join(headline_parts(analysis))


def headline_parts(analysis: Analysis) -> list[str]:
    """The same by subject: value, gradient, history, sampling; the gradient first where values are not enough."""
    parts = [_on_value(analysis)]
    if analysis.gradient is not None:
        weighing = on_weights(analysis.gradient, analysis.facts)
        first = analysis.gradient.matter or analysis.gradient.misled
        parts = [weighing, f"By the value alone: {parts[0]}"] if first else [*parts, weighing]
        parts.append(on_history(analysis.gradient))
    sampled = [] if analysis.sampling is None else [on_sampling(analysis.sampling, analysis.facts)]
    return [part for part in (*parts, *sampled) if part]


def _on_value(analysis: Analysis) -> str:
    found = analysis.recommendation
    if not found.better:
        return _keep(analysis)
    once = "" if analysis.facts.return_gap is not None else "Every prompt occurs once: a history cannot help. "
    reduction = _share_with_interval(found.reduction, found.reduction_low, found.reduction_high)
    worth = f"{reduction} lower" if reduction else f"lower by {_difference(analysis)}"
    sentences = [
        f"{once}Use {_setting(analysis)}: its value error (MSE) is {worth} than that of {RIVALS[found.rival]}."
    ]
    if found.tied:
        which = "Tied with it" if found.row == found.lowest else "It is the simplest of those tied for the lowest error"
        sentences.append(f"{which}: {_in_words(found.tied)}.")
    sentences += _noise(analysis)
    if analysis.risk is None:
        sentences.append("With one completion per visit levels are not identified, only differences.")
    return " ".join(sentences)


def paste_lines(analysis: Analysis) -> list[tuple[str, str]]:
    """What sets the recommendation up: where it goes, and the line; none where nothing is to be changed."""
    sampled = analysis.sampling is not None and analysis.sampling.gains
    return _lines_of_method(analysis) + [SAMPLING_LINE] * sampled


def _lines_of_method(analysis: Analysis) -> list[tuple[str, str]]:
    found, axis, gradient = analysis.recommendation, analysis.facts.time_axis, analysis.gradient
    if gradient is not None and gradient.matter and gradient.setting.method:
        weights = gradient.weights
        line = gradient.setting.python_line(axis, weights)
        lines = [
            ("TRL", f'BaselineGRPOTrainer(advantage_estimator={line}, weights="{weights}", ...)'),
            ("A loop of your own", f"{line}.step(prompt_ids, rewards, step, weights={weights}s)"),
        ]
        return lines + [("verl", gradient.setting.verl_line(axis, weights))] * (weights in VERL_WEIGHTS)
    if not (found.method and found.better) or (gradient is not None and gradient.misled):
        return []
    return [("TRL, or a loop of your own", found.python_line(axis)), ("verl", found.verl_line(axis))]


def paste_notes(analysis: Analysis) -> Iterator[str]:
    """What must be filled into the lines."""
    gradient = analysis.gradient
    matter = gradient is not None and gradient.matter and bool(gradient.setting.method)
    found = gradient.setting if gradient is not None and matter else analysis.recommendation
    bandwidth = found.params.get("bandwidth")
    if analysis.facts.time_axis != "visit" or not _lines_of_method(analysis):
        return
    if isinstance(bandwidth, int | float):
        yield (
            f"The log counts visits, training counts steps: the bandwidth is {bandwidth:g} times the steps from one "
            "visit of a prompt to the next (steps per epoch)."
        )
    elif found.method == "kalman":
        yield (
            "The log counts visits, training counts steps: drift_variance is its default, 0.0002, divided by the steps "
            "from one visit of a prompt to the next (steps per epoch)."
        )


def sampling_hint(analysis: Analysis) -> str:
    """How to ask what sampling would save; empty where it was asked, prompts do not return, or few groups are dead."""
    dead = analysis.facts.dead_groups or 0.0
    if analysis.sampling is not None or analysis.facts.return_gap is None or dead < MANY_DEAD:
        return ""
    return (
        f"{_percent(dead)} of the groups were dead: kaestat analyze --sampling tells how many completions it would "
        "save to draw prompts by their predicted values."
    )


def _keep(analysis: Analysis) -> str:
    """Where nothing is shown to be better than what everybody has."""
    found = analysis.recommendation
    once = "" if analysis.facts.return_gap is not None else "Every prompt occurs once: a history cannot help. "
    rival = RIVALS[found.rival]
    if math.isnan(found.difference_low):
        return (
            f"{once}Keep {rival}: with one prompt there are no intervals, and no method is shown to have a lower error."
        )
    lowest = (
        f"; {found.lowest} is the lowest, but within the error of this log"
        if found.lowest not in (found.row, found.rival)
        else ""
    )
    return f"{once}Keep {rival}: no method here is shown to have a lower value error (MSE){lowest}."


def _setting(analysis: Analysis) -> str:
    found = analysis.recommendation
    return found.in_words(analysis.facts.time_axis) if found.method else found.row


def _difference(analysis: Analysis) -> str:
    found, unit = analysis.recommendation, unit_of(analysis)
    told = f"{unit.number(-found.difference)}{unit.times}"
    if math.isnan(found.difference_low):
        return told
    return f"{told} (95 % interval {unit.interval(-found.difference_high, -found.difference_low)})"


def _noise(analysis: Analysis) -> Iterator[str]:
    found = analysis.recommendation
    if math.isnan(found.noise_reduction) or analysis.gradient is not None:  # then it is measured
        return
    variance = "p(1-p)" if analysis.facts.binary else "the reward variance"
    told = (
        f"The noise of the gradient, {variance} + MSE per completion, falls by {_percent(found.noise_reduction)} with "
        "it where score norms do not matter"
    )
    if math.isnan(found.mse_share):
        yield f"{told}."
        return
    share = _percent(max(found.mse_share, 0.0))
    yield f"{told}: the MSE is {share} of {variance}, and was {_percent(found.rival_mse_share)}."


def _share_with_interval(share: float, low: float, high: float) -> str:
    """Such as ``86 % (95 % interval 84 to 87 %)``; empty where the shares are none.

    An unbiased estimate of a small error may be negative; no error is lower by more than the whole.
    """
    if math.isnan(share) or not low > 0:
        return ""
    top = min(high, 1.0)
    digits = 0 if top - low > 0.02 else 1
    return f"{_percent(min(share, 1.0), digits)} (95 % interval {100 * low:.{digits}f} to {_percent(top, digits)})"


def _percent(share: float, digits: int | None = None) -> str:
    if digits is None:
        digits = 0 if abs(share) >= 0.1 else 1
    return f"{100 * share:.{digits}f} %"


def _in_words(rows: Sequence[str]) -> str:
    if len(rows) > NAMED:
        return f"{', '.join(rows[:NAMED])} and {len(rows) - NAMED} more"
    return ", ".join(rows)
