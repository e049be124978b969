"""How near each method comes to the best baseline of every prompt: study ``best_baselines``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from paper_figures.shared.charts import (
    BLACK,
    BLUE,
    GREEN,
    LABELS,
    ORANGE,
    Mark,
    dot_plot,
    key,
    line_key,
    plain_log,
    styled,
)
from paper_figures.shared.finding import Finding, above, below
from paper_figures.shared.tidy import by_measure, span, with_error
from simulations.studies.best_baselines import REGIMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = ["regime", "group_size"]
OURS, PLAIN = "kae_eb, weighted", "kae_eb"
AVERAGES = ("kae_eb", "kae", "reinforce++")
ROWS = (*(f"{name}, weighted" for name in AVERAGES), *AVERAGES, "bayes_filter", "rloo", "none", "oracle")
NAMES = LABELS | {f"{name}, weighted": f"{LABELS[name]}, weighted" for name in AVERAGES}
DEPENDENT = tuple(name for name, regime in REGIMES.items() if regime.ratio != 1 or regime.slope)
INDEPENDENT = "independent"
LIMIT, LOSS = 1.05, 0.01
MARKS = {1: Mark(GREEN, "D", filled=False), 2: Mark(BLUE, "o"), 8: Mark(ORANGE, "s")}
CAPTION = (
    "Noise of the gradient E[W (R - b)^2], relative to that of the best baseline b* = E[W R] / E[W] of every prompt "
    "(Monte Carlo standard error). Weighted: with a completion's squared score norm W. Learned bandwidths throughout."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every setting and method.

    summary: Of the study ``best_baselines``.
    Returns: ``regime, group_size, method, noise, noise_mcse, ratio_to_best, ratio_to_best_mcse, over_plain,
        over_plain_mcse, n``; the best baseline has no ratio, and over_plain is what weights add to the ratio of KAE-EB.
    """
    return by_measure(summary, [*CELL, "method"], ("noise", "ratio_to_best", "over_plain"))


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting, a column for each method: noise relative to the best."""
    frame = table(summary).set_index([*CELL, "method"])[["ratio_to_best", "ratio_to_best_mcse"]]
    rows = []
    for cell in frame.index.droplevel("method").unique():
        text = [with_error(*frame.loc[(*cell, name)]) if (*cell, name) in frame.index else "" for name in ROWS]
        rows.append((f"{cell[0]}, G = {cell[1]}", *text))
    return pd.DataFrame(rows, columns=["Weights", *(NAMES[name] for name in ROWS)])


def findings(summary: pd.DataFrame) -> list[Finding]:
    """How near weighted KAE-EB comes to the best, what weights cost where they tell nothing, and the true value."""
    frame = table(summary)
    ours = frame[frame["method"] == OURS]
    large = ours[ours["group_size"] >= 4]
    idle = ours[ours["regime"] == INDEPENDENT]
    both = frame[frame["regime"].isin(DEPENDENT)].pivot_table(
        index=CELL, columns="method", values=["ratio_to_best", "ratio_to_best_mcse"]
    )
    value, own = (both["ratio_to_best", name] for name in ("oracle", OURS))
    spread = sum(both["ratio_to_best_mcse", name] ** 2 for name in ("oracle", OURS)) ** 0.5  # unpaired, so too large
    return [
        Finding(
            f"{NAMES[OURS]} has at most {LIMIT:g} times the least noise with four completions or more",
            below(large["ratio_to_best"], large["ratio_to_best_mcse"], LIMIT),
            f"{span(large['ratio_to_best'], '.3f')} times",
        ),
        Finding(
            f"{NAMES[OURS]} has at most {LIMIT:g} times the least noise at every group size",
            below(ours["ratio_to_best"], ours["ratio_to_best_mcse"], LIMIT),
            f"{_largest(ours)}; what is left is the error of the value itself",
        ),
        Finding(
            f"Where weights tell nothing (Assumption 6), they cost {NAMES[PLAIN]} at most {LOSS:g} of the least noise",
            below(idle["over_plain"], idle["over_plain_mcse"], LOSS),
            f"{span(idle['over_plain'], '.4f')}",
        ),
        Finding(
            f"Where wrong answers weigh more, the true value has more noise than {NAMES[OURS]}",
            above(value - own, spread),
            f"{span(value)} times the least, against {span(own)}",
        ),
    ]


def figure(summary: pd.DataFrame) -> Figure:
    """One panel per regime: what each method's noise exceeds the best by, by group size."""
    frame = table(summary)
    frame = frame.assign(excess=frame["ratio_to_best"] - 1, excess_mcse=frame["ratio_to_best_mcse"])
    frame = frame[frame["excess"] > 0]  # the true value is the best baseline where weights tell nothing
    with styled(13, 3.6) as drawing:
        panels = drawing.subplots(1, len(REGIMES), sharey=True, sharex=True)
        for axes, regime in zip(panels, REGIMES, strict=True):
            axes.axvline(LIMIT - 1, color=BLACK, linewidth=0.8, linestyle=":")
            part = frame[frame["regime"] == regime]
            dot_plot(axes, part, row="method", rows=ROWS, series="group_size", marks=MARKS, x="excess")
            axes.set_yticks(range(len(ROWS)), [NAMES[name] for name in ROWS])
            plain_log(axes.xaxis, subs=(1,))
            axes.set_title(regime.capitalize(), loc="left", fontsize=10, fontweight="bold")
        panels[len(REGIMES) // 2].set_xlabel("Noise of the gradient beyond the least, as a share of it (log scale)")
        keys = [key(mark, f"G = {size}") for size, mark in MARKS.items()]
        keys.append(line_key(f"{LIMIT - 1:.2f}", color=BLACK, linestyle=":"))
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return drawing


def _largest(rows: pd.DataFrame) -> str:
    at = rows.loc[rows["ratio_to_best"].idxmax()]
    at_most = with_error(at["ratio_to_best"], at["ratio_to_best_mcse"])
    return f"at most {at_most} ({at['regime']}, G = {at['group_size']})"
