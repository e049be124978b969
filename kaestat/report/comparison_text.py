"""A comparison of two runs in rows and sentences, the same on the terminal and on its page."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from kaestat.report.comparison import RunComparison
from kaestat.report.unit import Unit

HEADLINES = {
    "mean reward, last tenth": "Mean reward at the end",
    "dead groups": "Share of dead groups",
    "mean length": "Mean length",
}


def comparison_header(found: RunComparison) -> tuple[str, ...]:
    """Names of the columns."""
    return (
        "quantity",
        found.names[0],
        "95 % interval",
        found.names[1],
        "95 % interval",
        "difference",
        "its 95 % interval",
    )


def figure_rows(found: RunComparison) -> list[tuple[str, ...]]:
    """Rewards, dead groups and lengths."""
    row: Any
    rows = []
    for row in found.figures.itertuples():
        rows.append(_shown(row, Unit(0), digits=3 if row.quantity != "mean length" else 1))
    return rows


def error_rows(found: RunComparison) -> list[tuple[str, ...]]:
    """Value MSE of each method, in `error_unit`."""
    unit = error_unit(found)
    return [_shown(row, unit, digits=2) for row in found.errors.itertuples()]


def error_unit(found: RunComparison) -> Unit:
    """The unit of the value errors."""
    return Unit.of(pd.concat([found.errors["before"], found.errors["after"]]).astype(float))


def comparison_headline(found: RunComparison) -> list[str]:
    """The differences in a few sentences; completions to an equal mean reward only if their share is known."""
    first, second = found.names
    rows: list[Any] = [row for row in found.figures.itertuples() if row.quantity in HEADLINES]
    changes = [_change(row, row.quantity in found.different) for row in rows]
    if not found.different:
        return [f"No difference between {first} and {second} is shown.", *changes]
    if not found.share_known:
        return changes
    level = f"the mean reward that {first} ends at ({found.level:.3f})"
    if not math.isfinite(found.share):
        return [f"{second} does not reach {level}.", *changes]
    share = f"{found.share:.2f}{_interval(found.share_low, found.share_high)}"
    return [f"{second} reaches {level} after {share} of the completions that {first} takes.", *changes]


def comparison_notes(found: RunComparison) -> Iterator[str]:
    """Notes on how to read the numbers."""
    common = int(found.figures["n_common"].max())
    yield (
        f"Differences are {found.names[1]} minus {found.names[0]}. "
        + (
            f"For rewards and dead groups they are paired over the prompts that both runs have (up to {common:,}); "
            if common
            else "The runs have too few prompts in common to pair them; "
        )
        + "value errors count as independent. Intervals are over prompts, and hold for these two runs only: two runs "
        "of one configuration differ too, and only further seeds show by how much."
    )
    yield (
        "Mean rewards are those of the sampled completions, and every prompt counts equally; in kaestat analyze every "
        "completion does. If a sampler chooses prompts by their values, or a filter "
        "drops groups, they do not measure the policy. Compare test accuracies then."
    )
    holds = f"an interval that holds for all {found.n_tested} of them at once" if found.n_tested > 1 else "its interval"
    yield (
        f"A difference counts as shown if 0 is outside {holds}. Tested are mean reward at the end, dead groups, "
        "lengths, and completions to an equal mean reward, where both runs have them."
    )
    if found.errors.empty:
        yield "Value errors are not compared: in one run every visit has one completion, or no prompt comes back."
    else:
        yield "Value MSE of each method in each run, as in kaestat analyze: how well values can be estimated there."
    if not common:
        n_prompts = " and ".join(f"{facts.n_prompts:,}" for facts in found.facts)
        seen = ", ".join(f"of {name} {prompt!r:.60}" for name, prompt in zip(found.names, found.ids, strict=True))
        yield (
            f"{found.n_shared:,} of the {n_prompts} prompts are in both runs, so completions to an equal mean reward "
            f"cannot be compared. First ids are {seen}; a number and its text are two prompts."
        )
        return
    at = f"{found.share:.2f}" if math.isfinite(found.share) else "never"
    yield (
        f"Completions to an equal mean reward, {at}{_interval(found.share_low, found.share_high)}: after how many "
        f"completions the running mean over a tenth of the run reaches the level at which {found.names[0]} ends "
        f"({found.level:.3f}), as a share of the completions that {found.names[0]} takes; 95 % interval by bootstrap "
        "over prompts."
    )


def _shown(row: Any, unit: Unit, *, digits: int) -> tuple[str, ...]:
    scale = 10.0**unit.power

    def number(value: float, sign: str = "") -> str:
        return "-" if math.isnan(value) else f"{value / scale + 0.0:{sign}.{digits}f}"

    def span(low: float, high: float) -> str:
        return "-" if math.isnan(low) else f"{number(low)} to {number(high)}"

    return (
        str(row.quantity),
        number(row.before),
        span(row.before_low, row.before_high),
        number(row.after),
        span(row.after_low, row.after_high),
        number(row.difference, "+"),
        span(row.low, row.high),
    )


def _interval(low: float, high: float) -> str:
    if math.isnan(low):
        return ""
    if math.isinf(low):
        return " (95 % interval: not reached)"
    return f" (95 % interval {low:.2f} to {'not reached' if math.isinf(high) else f'{high:.2f}'})"


def _change(row: Any, shown: bool) -> str:
    digits = 1 if row.quantity == "mean length" else 3
    told = f"{HEADLINES[row.quantity]}: {row.before:.{digits}f} before, {row.after:.{digits}f} after"
    return f"{told}{'' if shown else ', not shown to differ'}."
