"""What an analysis says of the gradient's noise, in rows and sentences: the same on the terminal and in the report."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kaestat.report.facts import LogFacts
from kaestat.report.gradient import GradientAnalysis
from kaestat.report.unit import Unit

NOISE_HEADER = ("method", "weights", "noise", "se", "95 % interval", "/ grpo", "95 % interval", "/ none")
NOISE_TITLE = "Noise of the gradient, E[W (R - b)^2] per completion"
HOW_TO_LOG = (
    "How much noise each baseline leaves in the gradient cannot be told, as the log has no weights: log the squared "
    "norm of each completion's score as score_norm, or its tokens as length."
)


def noise_unit(gradient: GradientAnalysis) -> Unit:
    """The unit of the noises of an analysis."""
    return Unit.of(gradient.noise["noise"])


def noise_rows(gradient: GradientAnalysis) -> list[tuple[str, ...]]:
    """Rows of the table of noises, under `NOISE_HEADER`."""
    row: Any
    unit, rows = noise_unit(gradient), list[tuple[str, ...]]()
    for row in gradient.noise.itertuples():
        level = unit.number(row.noise), unit.number(row.se), unit.interval(row.ci_low, row.ci_high)
        ratio = _number(row.vs_grpo), _interval(row.vs_grpo_low, row.vs_grpo_high, ".3f"), _number(row.vs_none)
        rows.append((str(row.method), str(row.weights), *level, *ratio))
    return rows


def noise_unit_line(gradient: GradientAnalysis) -> str:
    """What the numbers of the table are."""
    what = "the completion's squared score norm"
    if gradient.by_length:
        what = "the completion's length, a stand-in for its squared score norm, and so are these noises"
    unit = noise_unit(gradient).name
    return f"In units of {unit}, but for ratios; se is the standard error over prompts. W is {what}."


def noise_notes() -> Iterator[str]:
    """How to read the table of noises."""
    yield (
        "Noise of the gradient: the mean of W (R - b)^2 over completions, unbiased as no value here knows its own "
        "reward (methods whose values do are left out); weights: what the values are averaged with. The squared norm "
        "of the mean gradient, which no baseline changes, is not taken off."
    )
    yield (
        "Weights of good and bad completions are compared within groups (the ratio of Mantel and Haenszel), so that "
        "hard prompts with long answers do not count."
    )


def on_weights(gradient: GradientAnalysis, facts: LogFacts) -> str:
    """Which of value and weights matters, as an instruction."""
    told = _weighing(gradient, facts)
    if not gradient.row or math.isnan(gradient.saving):
        return f"{told}." if told else ""
    if math.isnan(gradient.saving_low):
        alone = "With one prompt there are no intervals: whether weights matter cannot be told."
        return f"{told}. {alone}" if told else alone
    rival = "GRPO's group mean" if facts.group_size[1] > 1 else "no baseline"
    plain = f"the best without weights, {gradient.plain}"
    if gradient.matter:
        method = gradient.setting.in_words(facts.time_axis) if gradient.setting.method else gradient.row
        best, without = gradient.reduction(gradient.row, gradient.weights), gradient.reduction(gradient.plain)
        return (
            f"{told or 'Weights matter in this run'}: use {method} with weights={gradient.weights}, {_shares(best)} "
            f"less noise in the gradient than with {rival}; {plain}: {_shares(without)}."
        )
    harm = gradient.saving_high < 0
    advice = "Weights add noise to the gradient here" if harm else "Weights make no difference to the gradient here"
    more = _shares((-gradient.saving, -gradient.saving_high, -gradient.saving_low))
    of_value = gradient.reduction(gradient.value)
    lower = f" {gradient.value} leaves {_shares(of_value)} less noise than {rival}." if of_value else ""
    return (
        f"{advice}: leave them. {f'{told}; ' if told else ''}{gradient.row} with weights={gradient.weights} leaves "
        f"{more} more noise than {plain}.{lower}"
    )


def _weighing(gradient: GradientAnalysis, facts: LogFacts) -> str:
    """By how much wrong answers weigh more; empty where no group has both kinds."""
    if math.isnan(gradient.ratio):
        return ""
    bad = "Your wrong answers weigh" if facts.binary else "Your completions below the mean of their group weigh"
    good = "right ones" if facts.binary else "those above it"
    interval = _interval(gradient.ratio_low, gradient.ratio_high, ".3g")
    shown = "" if interval == "-" else f" (95 % interval {interval})"
    return f"{bad} {gradient.ratio:.3g}{shown} times {good}{' by length' if gradient.by_length else ''}"


def _shares(found: tuple[float, float, float] | None) -> str:
    """Such as ``22 % (18 to 26)``."""
    if found is None or math.isnan(found[0]):
        return "no known share"
    digits = 0 if abs(found[0]) >= 0.1 else 1
    share, low, high = (f"{round(100 * x, digits) + 0.0:.{digits}f}" for x in found)
    return f"{share} %" + ("" if math.isnan(found[1]) else f" ({low} to {high})")


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _interval(low: float, high: float, form: str) -> str:
    return "-" if math.isnan(low) else f"{low:{form}} to {high:{form}}"
