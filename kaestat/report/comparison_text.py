"""A comparison of two runs in tables and sentences, and its page."""

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kaestat.core.provenance import Provenance
from kaestat.core.storage import write_atomically
from kaestat.report.comparison import RunComparison
from kaestat.report.document import Document, Table
from kaestat.report.files import provenance_lines
from kaestat.report.html_page import Download, html_page
from kaestat.report.plots import mean_rewards, render
from kaestat.report.tables import fact_lines
from kaestat.report.unit import PLAIN, Estimate

PAGE = "compare.html"
HEADLINES = {
    "mean reward, last tenth": "Mean reward at the end",
    "dead groups": "Share of dead groups",
    "mean length": "Mean length",
}


def comparison_document(runs: RunComparison) -> Document:
    """The document of a comparison."""
    before, after = runs.names
    header = "quantity", before, "95 % interval", after, "95 % interval", "difference", "its 95 % interval"
    table = Table("Rewards and dead groups", header, [_cells(row) for row in runs.figures.itertuples()])
    return Document(
        title=" and ".join(runs.names),
        headline=comparison_headline(runs),
        facts=[(name, fact_lines(facts)) for name, facts in zip(runs.names, runs.facts, strict=True)],
        tables=[table],
        notes=list(comparison_notes(runs)),
    )


def write_page(runs: RunComparison, provenance: Sequence[Provenance], folder: str | os.PathLike[str]) -> Path:
    """Write ``compare.html`` to the folder, which is made if absent; returns its path."""
    page = html_page(
        comparison_document(runs),
        downloads=[Download("figures.csv", runs.figures.to_csv(index=False).encode())],
        provenance=provenance_lines(provenance),
        figure=render(mean_rewards(runs.names, runs.curves), "svg"),
        caption="Mean reward against completions: running means over a tenth of the run",
    )
    write_atomically(Path(folder) / PAGE, page)
    return Path(folder) / PAGE


def _cells(row: Any) -> tuple[str, ...]:
    form = ".1f" if row.quantity == "mean length" else ".3f"
    return (
        str(row.quantity),
        PLAIN.number(row.before, form),
        PLAIN.interval(row.before_low, row.before_high, form),
        PLAIN.number(row.after, form),
        PLAIN.interval(row.after_low, row.after_high, form),
        PLAIN.number(row.difference, f"+{form}"),
        PLAIN.interval(row.low, row.high, form),
    )


def comparison_headline(runs: RunComparison) -> list[str]:
    """The differences in a few sentences; completions to an equal mean reward only if their share is known."""
    first, second = runs.names
    rows: list[Any] = [row for row in runs.figures.itertuples() if row.quantity in HEADLINES]
    changes = [_change(row, row.quantity in runs.different) for row in rows]
    if not runs.different:
        return [f"No difference between {first} and {second} is shown.", *changes]
    if not runs.share_shown:
        return changes
    level = f"the mean reward that {first} ends at ({runs.level:.3f})"
    if not math.isfinite(runs.share[0]):
        return [f"{second} does not reach {level}.", *changes]
    return [f"{second} reaches {level} after {_text(runs.share)} of the completions that {first} takes.", *changes]


def comparison_notes(runs: RunComparison) -> Iterator[str]:
    """Notes on how to read the numbers."""
    before, after = runs.names
    common = int(runs.figures["n_common"].max())
    pairs = f"paired over the prompts that both runs have (up to {common:,})" if common else "not paired"
    yield (
        f"Differences are {after} minus {before}. Those of rewards and dead groups are {pairs}. Intervals are over "
        "prompts, and hold for these two runs only: two runs of one configuration differ too, and only further seeds "
        "show by how much."
    )
    yield (
        "Mean rewards are those of the sampled completions, and every prompt counts equally. If a sampler chooses "
        "prompts by their values, or a filter drops groups, they do not measure the policy. Compare test accuracies "
        "then."
    )
    holds = f"an interval that holds for all {runs.n_tested} of them at once" if runs.n_tested > 1 else "its interval"
    yield (
        f"A difference counts as shown if 0 is outside {holds}. Tested are mean reward at the end, dead groups, "
        "lengths, and completions to an equal mean reward, where both runs have them."
    )
    if not common:
        yield (
            "Completions to an equal mean reward cannot be compared. Prompts of two logs are the same if their ids "
            "are equal; a number and its text are two ids."
        )
        return
    yield (
        f"Completions to an equal mean reward, {_text(runs.share)}: when the running mean over a tenth of the run "
        f"reaches the level at which {before} ends ({runs.level:.3f}), as a share of the completions that {before} "
        "takes."
    )


def _text(share: Estimate) -> str:
    mean, low, high = (f"{end:.2f}" if math.isfinite(end) else "not reached" for end in share)
    if math.isnan(share[1]):
        return mean
    return f"{mean} (95 % interval {low if low == high else f'{low} to {high}'})"


def _change(row: Any, shown: bool) -> str:
    digits = 1 if row.quantity == "mean length" else 3
    change = f"{HEADLINES[row.quantity]}: {row.before:.{digits}f} before, {row.after:.{digits}f} after"
    return f"{change}{'' if shown else ', not shown to differ'}."
