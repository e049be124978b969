"""An analysis of gradient noise in rows and sentences, the same on the terminal and in the report."""

import math
from typing import Any

from kaestat.report.document import Table
from kaestat.report.facts import LogFacts
from kaestat.report.gradient import SAFEST, WITHOUT_HISTORY, GradientAnalysis
from kaestat.report.unit import PLAIN, Unit

NOISE_HEADER = (
    "method", "weights", "noise", "standard error", "95 % interval", "ratio to grpo", "its 95 % interval",
    "ratio to none",
)  # fmt: skip
PAYS = 0.05  # share of the noise below which a history is not worth having: one completion in twenty
PAYING = "pays"
TOO_WIDE = 0.5  # an interval of a share that reaches further on both sides of 0 says nothing


def noise_table(gradient: GradientAnalysis) -> Table:
    """The noise that each method leaves, as text."""
    row: Any
    unit, rows = Unit.of(gradient.noise["noise"]), list[tuple[str, ...]]()
    for row in gradient.noise.itertuples():
        level = unit.number(row.noise), unit.number(row.se), unit.interval(row.ci_low, row.ci_high)
        ratios = PLAIN.number(row.vs_grpo, ".3f"), PLAIN.interval(row.vs_grpo_low, row.vs_grpo_high, ".3f")
        rows.append((str(row.method), str(row.weights), *level, *ratios, PLAIN.number(row.vs_none, ".3f")))
    weight = "the completion's squared score norm"
    if gradient.by_length:
        weight = "the completion's length, used in place of its squared score norm: the noise is approximate"
    caption = f"Noise is in units of {unit.name}. Standard errors are over prompts. W is {weight}."
    return Table("Noise of the gradient, E[W (R - b)^2] per completion", NOISE_HEADER, rows, caption)


def on_weights(gradient: GradientAnalysis, facts: LogFacts) -> str:
    """Advice on which of value and weights matters."""
    told = _weighing(gradient, facts)
    rival = "GRPO's group mean" if facts.group_size[1] > 1 else "no baseline at all"
    misled = _misled(gradient, facts, rival)
    if not gradient.row or (math.isnan(gradient.saving) and not gradient.matter):
        return f"{told}.{misled}" if told else misled.lstrip()
    if math.isnan(gradient.saving_low) and not gradient.matter:
        alone = "With one prompt there are no intervals: whether weights matter is unknown."
        return f"{told}. {alone}" if told else alone
    of_value = gradient.reduction(gradient.value)
    plain = f"the best method without weights, {gradient.plain}"
    if gradient.matter:
        method = gradient.setting.in_words(facts.time_axis) if gradient.setting.method else gradient.row
        best, without = gradient.reduction(gradient.row, gradient.weights), gradient.reduction(gradient.plain)
        safer = (
            f" {gradient.simpler} is simpler and does about as well on this log, but only {SAFEST} was near the best "
            "in every setting of the study best_baselines, also where wrong answers are few and heavy."
        )
        avoid = (
            f", which is not shown to be worse; {gradient.value} without weights leaves {_compared(of_value, rival)}"
        )
        return (
            f"{told or 'Weights matter in this run'}: use {method} with weights={gradient.weights}. The gradient then "
            f"has {_shares(best)} less noise than with {rival}. With {plain}, it has {_shares(without)} less"
            f"{'' if gradient.saving_low > 0 else avoid}.{safer if gradient.simpler else ''}"
        )
    harm = gradient.saving_high < 0
    advice = "Weights add noise to the gradient here" if harm else "Weights are not shown to lower the noise here"
    saving = gradient.saving, gradient.saving_low, gradient.saving_high
    differs = of_value is not None and not math.isnan(of_value[1]) and any(of_value)  # as GRPO's own does not
    lower = f" {gradient.value} leaves {_compared(of_value, rival)}." if differs else ""
    return (
        f"{advice}: leave them out. {f'{told}; ' if told else ''}{gradient.row} with weights={gradient.weights} leaves "
        f"{_compared(saving, plain)}.{lower}{misled}"
    )


def on_history(gradient: GradientAnalysis) -> str:
    """Whether a history helps in addition to weights, as measured and as predicted."""
    return " ".join(filter(None, (_history_measured(gradient), _history_predicted(gradient))))


def history_verdict(gradient: GradientAnalysis) -> str:
    """Whether a replay shows that a history helps in addition to weights: `PAYING`, its opposite, or unclear.

    It pays where it lowers the noise by more than `PAYS`. Empty where nothing was measured.
    """
    if math.isnan(gradient.by_history):
        return ""
    if gradient.by_history_low > PAYS:
        return PAYING
    return "does not pay" if gradient.by_history_high < PAYS else "is not shown to pay"


def _history_measured(gradient: GradientAnalysis) -> str:
    verdict = history_verdict(gradient)
    if not verdict:
        return ""
    found = gradient.by_history, gradient.by_history_low, gradient.by_history_high
    compared = f"weighted {SAFEST} leaves {_compared(found, 'the batch mean with the same weights')}"
    told = f"A history {verdict} for the gradient: {compared}."
    if verdict == PAYING:
        return told
    return f"{told} {WITHOUT_HISTORY} with these weights and scale='none' needs no history."


def _history_predicted(gradient: GradientAnalysis) -> str:
    """What the law says of single completions with a weighted history, and from where on no baseline beats the value.

    That threshold is one of all success rates of the log: at their mean it would be lower.
    """
    law = gradient.law
    if law is None or math.isnan(law.to_batch[1]):
        return ""  # one prompt says nothing of how prompts differ
    batch, group = ((1 - ratio, 1 - high, 1 - low) for ratio, low, high in (law.to_batch, law.to_group))
    told = (
        "For the same number of completions, the law of the baseline predicts that a weighted history with one "
        "completion per prompt leaves "
        f"{_compared(batch, 'the weighted batch mean')}, and {_compared(group, f'GRPO in groups of {law.group}')}."
    )
    threshold, low, high = law.threshold
    if math.isnan(gradient.ratio) or math.isnan(low):
        return told
    _, least, most = law.none_to_value
    bound = f"{_times(threshold)} ({_times(low)} to {_times(high)})"
    side = "below" if least > 1 else "above" if most < 1 else "not clearly below or above"
    return (
        f"{told} With success rates as in this log, training without a baseline leaves less noise than subtracting the "
        f"value if wrong answers weigh more than {bound} times as much as right ones. Here they weigh "
        f"{_times(gradient.ratio)} times as much, which is {side} that."
    )


def _misled(gradient: GradientAnalysis, facts: LogFacts, rival: str) -> str:
    """That values are worse than nothing, where that is shown."""
    if not gradient.misled:
        return ""
    less = _compared(gradient.reduction(gradient.plain), rival)
    less = less if facts.group_size[1] > 1 else f"less noise than {gradient.value}"
    return f" Training without a baseline leaves {less}: do not subtract values in this run."


def _weighing(gradient: GradientAnalysis, facts: LogFacts) -> str:
    """By how much wrong answers weigh more; empty where no group has both kinds."""
    if math.isnan(gradient.ratio):
        return ""
    bad = "Your wrong answers weigh" if facts.binary else "Your completions below the mean of their group weigh"
    good = "right ones" if facts.binary else "those above it"
    low, high = _times(gradient.ratio_low), _times(gradient.ratio_high)
    shown = "" if math.isnan(gradient.ratio_low) else f" (95 % interval {low} to {high})"
    return f"{bad} {_times(gradient.ratio)}{shown} times as much as {good}{' by length' if gradient.by_length else ''}"


def _shares(found: tuple[float, float, float] | None) -> str:
    """Such as ``22 % (18 to 26)``."""
    if found is None or math.isnan(found[0]):
        return "no known share"
    digits = 0 if abs(found[0]) >= 0.1 else 1
    share, low, high = (f"{round(100 * x, digits) + 0.0:.{digits}f}" for x in found)
    return f"{share} %" + ("" if math.isnan(found[1]) else f" ({low} to {high})")


def _compared(found: tuple[float, float, float] | None, rival: str) -> str:
    """By how much less noise there is than with a rival, or more; no number where the interval has nearly any."""
    if found is not None and found[1] < -TOO_WIDE < TOO_WIDE < found[2]:
        return f"either more or less noise than {rival} (the log is too small to say which)"
    if found is None or not found[0] < 0:
        return f"{_shares(found)} less noise than {rival}"
    share, low, high = found
    if share > -1:
        return f"{_shares((-share, -high, -low))} more noise than {rival}"
    interval = "" if math.isnan(low) else f" ({_times(1 - high)} to {_times(1 - low)})"
    return f"{_times(1 - share)}{interval} times as much noise as {rival}"


def _times(ratio: float) -> str:
    """Three digits, without an exponent below a million."""
    return f"{float(f'{ratio:.3g}'):,g}" if 1e3 <= ratio < 1e6 else f"{ratio:.3g}"
