"""The paper's reuse of minibatches against other prompt schedules: study ``reuse_schedule``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from paper_figures.shared.charts import (
    BLACK,
    BLUE,
    GREEN,
    LABELS,
    VERMILION,
    Mark,
    dot_plot,
    key,
    line_key,
    plain_log,
    styled,
)
from paper_figures.shared.finding import Finding, below
from paper_figures.shared.tidy import by_measure, with_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {
    "reuse": Mark(BLUE, "o"),
    "uniform": Mark(VERMILION, "s", filled=False),
    "epochs": Mark(GREEN, "^", filled=False),
}
NAMES = {"reuse": "reuse, J = 10 (the paper's)", "uniform": "uniform minibatches", "epochs": "epochs"}
METHODS = ("kae", "kae_eb", "kae:bandwidth=80", "kae_eb:bandwidth=80", "reinforce++")
CAPTION = (
    "Value MSE relative to GRPO's under the same prompt schedule (Monte Carlo standard error). KAE and KAE-EB smooth "
    "over 10 steps unless the name says 80."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """Every schedule and method.

    summary: Of the study ``reuse_schedule``.
    Returns: ``schedule, method, mse, mse_mcse, ratio_to_grpo, ratio_to_grpo_mcse, n, visits_within_10_steps``; ``rloo``
        is GRPO's leave-one-out value.
    """
    frame = by_measure(summary, ["schedule", "method"], ("mse", "ratio_to_grpo"))
    visits = summary[summary["measure"] == "visits_within_10_steps"].set_index("schedule")["estimate"]
    return frame.assign(visits_within_10_steps=frame["schedule"].map(visits))


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each method, a column for each schedule."""
    cells = table(summary).set_index(["method", "schedule"])
    rows = [
        (
            LABELS[method],
            *(with_error(*cells.loc[(method, name), ["ratio_to_grpo", "ratio_to_grpo_mcse"]]) for name in MARKS),
        )
        for method in METHODS
    ]
    visits = [f"{cells.loc[('kae', name), 'visits_within_10_steps']:.2f}" for name in MARKS]
    rows.append(("Past visits within 10 steps", *visits))
    return pd.DataFrame(rows, columns=["Values", *(NAMES[name] for name in MARKS)])


def findings(summary: pd.DataFrame) -> list[Finding]:
    """What the gain needs."""
    cells = table(summary).set_index(["method", "schedule"])
    reused, wide = cells.loc["kae", "reuse"], cells.loc["kae:bandwidth=80"].drop("reuse")
    found = [
        Finding(
            "Under the paper's reuse schedule KAE at bandwidth 10 has at most 40 % of GRPO's value MSE",
            _below(reused, 0.4),
            _text(reused),
            "paper",
            ("schedule",),
        ),
        *(
            Finding(
                f"KAE at bandwidth 10 has at most 40 % of GRPO's value MSE with {NAMES[name]}, too",
                _below(cells.loc["kae", name], 0.4),
                f"{_text(cells.loc['kae', name])}; "
                f"{cells.loc[('kae', name), 'visits_within_10_steps']:.2f} past visits within 10 steps",
            )
            for name in ("uniform", "epochs")
        ),
        Finding(
            "A bandwidth of 80 steps makes up for the reuse",
            below(wide["ratio_to_grpo"], wide["ratio_to_grpo_mcse"], reused["ratio_to_grpo"]),
            "; ".join(f"{NAMES[name]}: {_text(row)}" for name, row in wide.iterrows()),
        ),
    ]
    return found


def figure(summary: pd.DataFrame) -> Figure:
    """A row for each method, a mark for each schedule."""
    with styled(8.0, 3.6) as drawing:
        axes = drawing.subplots()
        axes.axvline(1.0, color=BLACK, linewidth=1.0)
        dot_plot(axes, table(summary), row="method", rows=METHODS, series="schedule", marks=MARKS, x="ratio_to_grpo")
        plain_log(axes.xaxis)
        axes.set_xlabel("Value MSE relative to GRPO's (log scale)")
        keys = [key(mark, NAMES[name]) for name, mark in MARKS.items()] + [line_key("GRPO", color=BLACK)]
        drawing.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return drawing


def _below(row: pd.Series, limit: float) -> str:
    return below([row["ratio_to_grpo"]], [row["ratio_to_grpo_mcse"]], limit)


def _text(row: pd.Series) -> str:
    return f"{with_error(row['ratio_to_grpo'], row['ratio_to_grpo_mcse'])} of GRPO's MSE"
