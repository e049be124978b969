"""The paper's reuse of minibatches against other prompt schedules: study ``reuse_schedule``."""

import pandas as pd

from paper_figures.shared.charts import LABELS
from paper_figures.shared.finding import Finding, below
from paper_figures.shared.tidy import by_measure, text_grid, with_error

NAMES = {"reuse": "reuse, J = 10 (the paper's)", "uniform": "uniform minibatches", "epochs": "epochs"}
ROWS = {name: LABELS[name] for name in ("kae", "kae_eb", "kae:bandwidth=80", "kae_eb:bandwidth=80", "reinforce++")}
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
    frame = table(summary)
    grid = text_grid(frame, "ratio_to_grpo", "method", ROWS, "schedule", NAMES)
    visits = frame.groupby("schedule")["visits_within_10_steps"].first()
    grid.loc[len(grid)] = ["Past visits within 10 steps", *(f"{visits[name]:.2f}" for name in NAMES)]
    return grid


def findings(summary: pd.DataFrame) -> list[Finding]:
    """What the gain needs."""
    cells = table(summary).set_index(["method", "schedule"])
    reused, wide = cells.loc["kae", "reuse"], cells.loc["kae:bandwidth=80"].drop("reuse")
    return [
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


def _below(row: pd.Series, limit: float) -> str:
    return below([row["ratio_to_grpo"]], [row["ratio_to_grpo_mcse"]], limit)


def _text(row: pd.Series) -> str:
    return f"{with_error(row['ratio_to_grpo'], row['ratio_to_grpo_mcse'])} of GRPO's MSE"
