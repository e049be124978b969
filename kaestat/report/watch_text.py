"""The text of `kaestat watch` about a run, in rows and sentences: the same on the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kaestat.core.spelling import counted
from kaestat.report.unit import Unit

if TYPE_CHECKING:
    from kaestat.watch import MethodFigures, Recent, RunSummary

PERCENT = 100.0


def watch_unit(summary: RunSummary) -> Unit:
    """The unit of the value errors of a run."""
    return Unit.of(row.error for row in summary.methods)


def watch_header(summary: RunSummary) -> tuple[str, ...]:
    """Names of the columns of `watch_rows`."""
    what = "value MSE" if summary.absolute else f"MSE less that of {summary.reference}"
    ratio = (f"share of {summary.reference}'s",) if summary.absolute else ()
    noise = (f"gradient noise over {summary.reference}'s",) if summary.measured_by else ()
    return ("method", f"{what}{watch_unit(summary).times}", *ratio, *noise)


def watch_rows(summary: RunSummary) -> list[tuple[str, ...]]:
    """A row for each method, lowest error first; each number with its standard error."""
    unit = watch_unit(summary)
    rows = []
    for row in summary.methods:
        error = _with_error(row.error, row.error_se, unit)
        ratio = (_with_error(row.ratio, row.ratio_se, Unit(0)),) if summary.absolute else ()
        noise = (_with_error(row.noise, row.noise_se, Unit(0)),) if summary.measured_by else ()
        rows.append((row.method, error, *ratio, *noise))
    return rows


def watch_facts(summary: RunSummary) -> Iterator[str]:
    """The main facts about the run, and its newest steps."""
    if not summary.n_steps:
        yield "No step is finished yet."
        return
    yield (
        f"Step {summary.last_step:,}: {counted(summary.n_completions, 'completion')} of "
        f"{counted(summary.n_prompts, 'prompt')} in {counted(summary.n_steps, 'finished step')}."
    )
    newest = f"Over the last {summary.recent_steps:,} steps" if summary.recent_steps > 1 else "In this step"
    told = [f"mean reward {_mean(summary.reward)}"]
    if not math.isnan(summary.dead.mean):
        told.append(
            f"{_percent(summary.dead)} of groups dead (all rewards alike; {_percent(summary.right)} all at the top)"
        )
    told.append(f"{_percent(summary.returned)} of prompts came back")
    if summary.reach_of and not math.isnan(summary.reached.mean):
        told.append(f"{_percent(summary.reached)} had a past within reach of {summary.reach_of}")
    yield f"{newest}: {', '.join(told)}."
    if summary.late:
        yield (
            f"{counted(summary.late, 'completion')} arrived after their step was finished and do not count here; "
            "kaestat analyze counts them."
        )
    yield from summary.told


def watch_headline(summary: RunSummary) -> str:
    """The findings so far, in a sentence or two."""
    if not summary.n_steps:
        return "The run has not begun, or its first step is not finished."
    if not summary.absolute and not any(math.isfinite(row.error) for row in summary.methods):
        return "No prompt has come back yet, so no history can have helped."
    best = summary.methods[0]
    told = []
    if not summary.absolute:
        told.append(
            f"Lowest value error so far: {best.method}. With one completion per prompt only differences are known."
        )
    elif best.method == summary.reference or math.isnan(best.ratio):
        told.append(f"No method has a lower value error than {summary.reference} so far.")
    else:
        told.append(
            f"{best.method} would have {_share(best)} of {summary.reference}'s value error so far"
            f"{'' if best.ratio + Z * best.ratio_se < 1 else ', which is not shown to be lower'}."
        )
    if summary.dead.mean >= HALF:
        told.append(
            f"{_percent(summary.dead)} of the newest groups are dead. Sampling by predicted values would avoid "
            "many of them: kaestat analyze --sampling estimates the gain."
        )
    return " ".join(told)


def watch_line(summary: RunSummary) -> str:
    """The summary in one line, for output that is not a terminal."""
    if not summary.n_steps:
        return "no step is finished yet"
    unit = watch_unit(summary)
    errors = ", ".join(f"{row.method} {_with_error(row.error, row.error_se, unit)}" for row in summary.methods)
    parts = [f"step {summary.last_step}", f"reward {_mean(summary.reward)}"]
    if any(math.isfinite(row.error) for row in summary.methods):
        parts.append(f"value {'MSE' if summary.absolute else 'MSE difference'}{unit.times}: {errors}")
    if not math.isnan(summary.dead.mean):
        parts.append(f"dead groups {_percent(summary.dead)}")
    if not math.isnan(summary.reached.mean):
        parts.append(f"in reach {_percent(summary.reached)}")
    noise = [f"{row.method} {row.noise:.3f}" for row in summary.methods if math.isfinite(row.noise)]
    if noise:
        parts.append(f"gradient noise over {summary.reference}'s: {', '.join(noise)}")
    return "; ".join(parts)


def watch_notes(summary: RunSummary) -> Iterator[str]:
    """Notes on how to read the numbers."""
    yield (
        "Value MSE: the mean squared distance of each method's values from the true ones, estimated without bias from "
        "the rewards alone. It is taken at visits with an earlier one, and averaged within prompts, then over prompts. "
        "After ± is the standard error over prompts. It is too small for methods that pool prompts (kae_eb, "
        "reinforce++); kaestat analyze gives intervals that hold for these too."
    )
    yield "A group is dead if all its rewards are equal: a method without a history gets no gradient from it."
    if summary.measured_by:
        what = "squared score norms" if summary.measured_by == "weight" else "lengths, in place of score norms"
        yield f"Gradient noise: E[W (R - b)^2] per completion, W from the log's {what}."
    else:
        yield "The log has no score norms and no lengths, so the noise of the gradient is unknown."


HALF = 0.5
Z = 1.96  # standard errors of a 95 % interval


def _share(row: MethodFigures) -> str:
    error = "" if math.isnan(row.ratio_se) else f" ± {PERCENT * row.ratio_se:.0f}"
    return f"{PERCENT * row.ratio:.0f}{error} %"


def _mean(found: Recent) -> str:
    return f"{found.mean:.3f}" + ("" if math.isnan(found.se) else f" ± {found.se:.3f}")


def _percent(found: Recent) -> str:
    return f"{PERCENT * found.mean:.0f} %"


def _with_error(value: float, se: float, unit: Unit) -> str:
    if math.isnan(value):
        return "-"
    return unit.number(value) + ("" if math.isnan(se) else f" ± {unit.number(se)}")
