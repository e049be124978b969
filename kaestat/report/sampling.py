"""The worth of sampling prompts by their predicted values on a log, in a table and sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kaestat.logs.reward_log import RewardLog
from kaestat.report.document import Table
from kaestat.report.facts import LogFacts
from kaestat.report.unit import PLAIN

if TYPE_CHECKING:
    import pandas as pd

POLICIES = ("neyman", "spo", "pools", "greso", "uniform")
OURS, REFERENCE = "neyman", "uniform"
BUDGET = 0.5
HEADER = (
    "policy", "worth", "standard error", "95 % interval", "all alike", "signal", "effective", "correction up to",
)  # fmt: skip
SAMPLING_LINE = ("TRL, which prompts", f'BaselineGRPOTrainer(..., prompt_sampler="{OURS}")')
NO_RETURNS = "Sampling: every prompt occurs once, so there is no history that a sampler could predict from."


@dataclass(frozen=True, eq=False)
class SamplingAnalysis:
    """The worth of sampling policies on a log."""

    # `kaestat.sampling_risk` of several policies at half of the completions, the one worth most first
    table: pd.DataFrame

    @classmethod
    def of(cls, log: RewardLog, *, n_boot: int, seed: int) -> SamplingAnalysis:
        """The worth of the policies, from a replay of a log in which prompts return."""
        from kaestat.logs.sampling_risk import sampling_risk

        table = sampling_risk(log, POLICIES, budget=BUDGET, n_boot=n_boot, seed=seed)
        return cls(table.sort_values("worth", ascending=False, kind="stable", ignore_index=True))

    def row(self, policy: str) -> Any:
        """The results for one policy."""
        return next(row for row in self.table.itertuples() if row.policy == policy)

    @property
    def gains(self) -> bool:
        """Whether sampling by predicted noise is significantly better than uniform sampling."""
        return bool(self.row(OURS).ci_low > 1)


def sampling_table(analysis: SamplingAnalysis) -> Table:
    """The worth of the policies as text."""
    row: Any
    rows: list[tuple[str, ...]] = []
    for row in analysis.table.itertuples():
        interval = "-" if row.policy == REFERENCE else PLAIN.interval(row.ci_low, row.ci_high)
        shares = map(PLAIN.number, (row.dead, row.signal, row.effective))
        worth = PLAIN.number(row.worth), PLAIN.number(row.se), interval
        rows.append((str(row.policy), *worth, *shares, f"{row.largest_correction:.1f}"))
    return Table(
        "Worth of half of the completions, if a policy draws them and a correction keeps the objective",
        HEADER,
        rows,
        "worth: factor by which uniform sampling needs more completions for the same gradient noise; all alike: "
        "share of completions of prompts whose rewards at the step are all equal; signal: reward variance per "
        "completion, relative to uniform sampling; effective: share of completions left after the corrections.",
    )


def on_sampling(analysis: SamplingAnalysis, facts: LogFacts) -> str:
    """Advice on prompts without a learning signal, in a sentence or two."""
    ours, dead = analysis.row(OURS), analysis.row(REFERENCE).dead
    alike = "all right or all wrong" if facts.binary else "all alike"
    share = "" if math.isnan(dead) else f"{100 * dead:.0f} % of your completions went to prompts that were {alike}. "
    interval = "" if math.isnan(ours.ci_low) else f" ({ours.ci_low:.2f} to {ours.ci_high:.2f})"
    worth = f"{ours.worth:.2f}{interval} times"
    if analysis.gains:
        return (
            f"{share}If you draw half of the completions by predicted values, with a correction that keeps the "
            f"objective, they are worth {worth} as many drawn uniformly."
        )
    return (
        f"{share}Drawing prompts by predicted values is not shown to help: half of the completions are worth {worth} "
        "as many drawn uniformly."
    )
