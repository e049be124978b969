"""Theorem 3 and Corollary 3, the suboptimality of the learned policy: study ``policy_regret``."""

import pandas as pd

from paper_figures.shared.charts import LABELS
from paper_figures.shared.finding import Finding, above, below
from paper_figures.shared.tidy import by_measure, text_grid, with_error
from simulations.studies.policy_regret import METHODS

NEAR = 1.2  # times the oracle's gap
EARLY = 100  # steps
GAP = r"gap_after_(\d+)"
CAPTION = (
    "Suboptimality gap (x 0.001) of the learned policy after so many steps, and relative to learning with the true "
    "value as baseline; Monte Carlo standard errors over training runs."
)


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """The gap of every method at every checkpoint.

    summary: Of the study ``policy_regret``.
    Returns: ``step, method, gap, gap_mcse, ratio_to_oracle, ratio_to_oracle_mcse, n``.
    """
    named = summary["measure"].str.extract(rf"^{GAP}(_ratio_to_oracle)?$")
    measure = named[1].notna().map({True: "ratio_to_oracle", False: "gap"})
    long = summary.assign(step=named[0].astype(float), measure=measure)[named[0].notna()]
    return by_measure(long, ["step", "method"], ("gap", "ratio_to_oracle")).astype({"step": int})


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each method, a column for each checkpoint, and the last ratio."""
    gaps = table(summary)
    gaps = gaps.assign(gap=1000 * gaps["gap"], gap_mcse=1000 * gaps["gap_mcse"])
    rows, steps = {name: LABELS[name] for name in METHODS}, {step: f"After {step:,}" for step in gaps["step"].unique()}
    levels = text_grid(gaps, "gap", "method", rows, "step", steps)
    last = text_grid(gaps, "ratio_to_oracle", "method", rows, "step", {gaps["step"].max(): "Relative to oracle, last"})
    return levels.join(last.drop(columns=""))


def findings(summary: pd.DataFrame) -> list[Finding]:
    """KAE against the oracle after the last step, and against the others after 100 steps and the last.

    Theorem 3's bound is about late steps; at step 100 KAE has next to no past, and the finding is ours.
    """
    gaps = table(summary)
    last = gaps[gaps["step"] == gaps["step"].max()].set_index("method")
    ours = last.loc["kae"]
    ratio, error = "ratio_to_oracle", "ratio_to_oracle_mcse"
    found = [
        Finding(
            f"KAE's gap is at most {NEAR:g} times that with the true value as baseline",
            below([ours[ratio]], [ours[error]], NEAR),
            f"gap after {gaps['step'].max():,} steps {with_error(ours[ratio], ours[error])} of the oracle's",
            "paper",
            ("corollary3_oracle",),
        )
    ]
    for other in ("grpo", "reinforce++"):
        for step in (EARLY, int(gaps["step"].max())):
            rows = gaps[gaps["step"] == step].set_index("method")
            paired = (summary["measure"] == f"kae_ahead_gap_after_{step:05d}") & (summary["method"] == other)
            (ahead,) = summary[paired].itertuples()  # in units of the oracle's gap
            found.append(
                Finding(
                    f"KAE's policy has a smaller gap than {LABELS[other]}'s after {step:,} steps",
                    above([ahead.estimate], [ahead.mcse]),
                    f"{_ratio(rows.loc['kae'])} against {_ratio(rows.loc[other])} of the oracle's, paired difference "
                    f"{with_error(ahead.estimate, ahead.mcse)}",
                    *(("ours",) if step == EARLY else ("paper", (f"corollary3_{other}",))),
                )
            )
    return found


def _ratio(row: pd.Series) -> str:
    return with_error(row["ratio_to_oracle"], row["ratio_to_oracle_mcse"])
