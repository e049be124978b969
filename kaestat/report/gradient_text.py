"""An analysis of gradient noise as a table and sentences."""

import math
from typing import Any

from kaestat.report.document import Table
from kaestat.report.facts import LogFacts
from kaestat.report.gradient import SAFEST, WITHOUT_HISTORY, GradientAnalysis
from kaestat.report.unit import PLAIN, Estimate, Unit

HEADER = (
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
    return Table("Noise of the gradient, E[W (R - b)^2] per completion", HEADER, rows, caption)


def on_weights(gradient: GradientAnalysis, facts: LogFacts) -> str:
    """Advice on which of value and weights matters."""
    rival = "GRPO's group mean" if facts.group_size[1] > 1 else "no baseline at all"
    ratio = _weighing(gradient, facts)
    saving = gradient.saving
    if gradient.matter:
        method = gradient.setting.in_words(facts.time_axis) if gradient.setting.method else gradient.row
        best = _share(gradient.reduction(gradient.row, gradient.weights))
        return (
            f"{ratio or 'Weights matter in this run'}: use {method} with weights={gradient.weights}. The gradient then "
            f"has {best} less noise than with {rival}. With the best method without weights, {gradient.plain}, it has "
            f"{_share(gradient.reduction(gradient.plain))} less."
        )
    sentences = [f"{ratio}."] if ratio else []
    if gradient.row and not math.isnan(saving[0]):
        if math.isnan(saving[1]):
            return " ".join([*sentences, "With one prompt there are no intervals: whether weights matter is unknown."])
        verdict = "add noise to the gradient here" if saving[2] < 0 else "are not shown to lower the noise here"
        plain = f"the best method without weights, {gradient.plain}"
        sentences.insert(0, f"Weights {verdict}: leave them out.")
        sentences.append(f"{gradient.row} with weights={gradient.weights} leaves {_compared(saving, plain)}.")
        of_value = gradient.reduction(gradient.value)
        if not math.isnan(of_value[1]) and any(of_value):  # as GRPO's own does not
            sentences.append(f"{gradient.value} leaves {_compared(of_value, rival)}.")
    if gradient.misled:
        less = f"less noise than {gradient.value}"
        if facts.group_size[1] > 1:
            less = _compared(gradient.reduction(gradient.plain), rival)
        sentences.append(f"Training without a baseline leaves {less}: do not subtract values in this run.")
    return " ".join(sentences)


def on_history(gradient: GradientAnalysis) -> str:
    """Whether a history helps in addition to weights, as measured and as predicted."""
    return " ".join(filter(None, (_history_measured(gradient), _history_predicted(gradient))))


def history_verdict(gradient: GradientAnalysis) -> str:
    """Whether a history lowers the noise by more than `PAYS`, in words; empty where nothing was measured."""
    share, low, high = gradient.by_history
    if math.isnan(share):
        return ""
    if low > PAYS:
        return PAYING
    return "does not pay" if high < PAYS else "is not shown to pay"


def _history_measured(gradient: GradientAnalysis) -> str:
    verdict = history_verdict(gradient)
    if not verdict:
        return ""
    compared = _compared(gradient.by_history, "the batch mean with the same weights")
    sentence = f"A history {verdict} for the gradient: weighted {SAFEST} leaves {compared}."
    if verdict == PAYING:
        return sentence
    return f"{sentence} {WITHOUT_HISTORY} with these weights and scale='none' needs no history."


def _history_predicted(gradient: GradientAnalysis) -> str:
    """From where on no baseline beats the value, as the law says of all success rates of the log."""
    if gradient.law is None or math.isnan(gradient.ratio[0]) or math.isnan(gradient.law.threshold[1]):
        return ""  # one prompt says nothing of how prompts differ
    threshold, low, high = gradient.law.threshold
    _, least, most = gradient.law.none_to_value
    side = "below" if least > 1 else "above" if most < 1 else "not clearly below or above"
    return (
        "With success rates as in this log, training without a baseline leaves less noise than subtracting the value "
        f"if wrong answers weigh more than {_times(threshold)} ({_times(low)} to {_times(high)}) times as much as "
        f"right ones. Here they weigh {_times(gradient.ratio[0])} times as much, which is {side} that."
    )


def _weighing(gradient: GradientAnalysis, facts: LogFacts) -> str:
    """By how much wrong answers weigh more; empty where no group has both kinds."""
    ratio, low, high = gradient.ratio
    if math.isnan(ratio):
        return ""
    bad = "Your wrong answers weigh" if facts.binary else "Your completions below the mean of their group weigh"
    good = "right ones" if facts.binary else "those above it"
    interval = "" if math.isnan(low) else f" (95 % interval {_times(low)} to {_times(high)})"
    return f"{bad} {_times(ratio)}{interval} times as much as {good}{' by length' if gradient.by_length else ''}"


def _share(share: Estimate) -> str:
    """Such as ``22 % (18 to 26)``."""
    if math.isnan(share[0]):
        return "no known share"
    digits = 0 if abs(share[0]) >= 0.1 else 1
    mean, low, high = (f"{round(100 * x, digits) + 0.0:.{digits}f}" for x in share)
    return f"{mean} %" + ("" if math.isnan(share[1]) else f" ({low} to {high})")


def _compared(less: Estimate, rival: str) -> str:
    """By how much less noise there is than with a rival, or more; no number where the interval has nearly any."""
    share, low, high = less
    if low < -TOO_WIDE < TOO_WIDE < high:
        return f"either more or less noise than {rival} (the log is too small to say which)"
    if not share < 0:
        return f"{_share(less)} less noise than {rival}"
    if share > -1:
        return f"{_share((-share, -high, -low))} more noise than {rival}"
    interval = "" if math.isnan(low) else f" ({_times(1 - high)} to {_times(1 - low)})"
    return f"{_times(1 - share)}{interval} times as much noise as {rival}"


def _times(ratio: float) -> str:
    """Three digits, without an exponent below a million."""
    return f"{float(f'{ratio:.3g}'):,g}" if 1e3 <= ratio < 1e6 else f"{ratio:.3g}"
