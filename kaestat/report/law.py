"""The predictions of the law of the baseline on a log, and their table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kaestat.logs.baseline_law import BETWEEN, LawPrediction, law_applies, law_of_log
from kaestat.logs.reward_log import RewardLog
from kaestat.report.document import Table
from kaestat.report.unit import PLAIN

if TYPE_CHECKING:
    import pandas as pd

NAMES = {
    "none": "no baseline, rewards 0 and 1",
    "none_signed": "no baseline, rewards -1 and 1",
    "batch_mean": "batch mean",
    "weighted_batch_mean": "weighted batch mean",
    "weighted_constant": "weighted constant",
    "history": "history",
    "weighted_history": "weighted history",
    "value": "value itself",
    "best": "best baseline itself",
}
GROUP_NAMES = {"rloo": "RLOO", "grpo": "GRPO"}
MEASURED = {"none": "none", "batch_mean": "reinforce++", "history": "kae_eb"}  # rows of `kaestat.gradient_risk`
MEASURED_WEIGHTED = {"weighted_batch_mean": "reinforce++", "weighted_history": "kae_eb"}
USUAL_GROUP = 8  # that a log of single completions is compared with


@dataclass(frozen=True, eq=False)
class LawAnalysis:
    """The law's predictions for a log."""

    # `kaestat.logs.baseline_law.LawPrediction.table`, and ``measured``: the same ratio by a replay of the log, NaN for
    # designs that the log cannot replay or that were not asked for
    table: pd.DataFrame
    threshold: tuple[float, float, float]  # `kaestat.theory.PromptMoments.threshold`, and its interval
    history: float  # `kaestat.logs.baseline_law.LawInputs`; the mean of ``drift``
    drift: float
    bandwidth: float
    none_to_value: tuple[float, float, float]  # Noise of no baseline over that of the value, and its interval
    # Noise of a weighted history over that of a weighted batch mean, and of GRPO in groups of ``group``, and their
    # intervals
    to_batch: tuple[float, float, float]
    to_group: tuple[float, float, float]
    group: int

    @classmethod
    def of(cls, log: RewardLog, noise: pd.DataFrame, *, seed: int, min_visits: int) -> LawAnalysis | None:
        """The predictions for a log with weights or lengths; None if the law does not apply.

        ``noise`` is `kaestat.gradient_risk` of the log; ``seed`` and ``min_visits`` are as for
        `kaestat.logs.baseline_law.law_of_log`.
        """
        if not law_applies(log, min_visits=min_visits):
            return None
        found = law_of_log(log, seed=seed, min_visits=min_visits)
        size = int(np.median(log.group_sizes))
        group = size if size > 1 else USUAL_GROUP
        table = found.table()
        unit = "vs_none" if found.unit == "none" else "vs_grpo"
        table["measured"] = [_measured(str(design), noise, unit, found) for design in table["design"]]
        return cls(
            table=table,
            threshold=found.threshold,
            history=found.inputs.history,
            drift=float(found.inputs.drift.mean()),
            bandwidth=found.inputs.bandwidth,
            none_to_value=found.ratio("none", "value"),
            to_batch=found.ratio("weighted_history", "weighted_batch_mean"),
            to_group=found.ratio("weighted_history", f"grpo_{group}"),
            group=group,
        )


def _measured(design: str, noise: pd.DataFrame, unit: str, found: LawPrediction) -> float:
    """What the replay measured of a design, in the same unit; NaN if nothing."""
    weighted = design in MEASURED_WEIGHTED
    method = "grpo" if design == found.unit != "none" else (MEASURED | MEASURED_WEIGHTED).get(design)
    rows = noise[(noise["method"].map(str) == method) & ((noise["weights"] != "none") == weighted)]
    rows = rows.sort_values("weights", ascending=False)  # score norms where there are lengths as well
    return float(rows[unit].iloc[0]) if len(rows) else np.nan


def design_name(design: str) -> str:
    """A design in words."""
    kind, _, size = design.rpartition("_")
    return f"{GROUP_NAMES[kind]}, groups of {size}" if kind in GROUP_NAMES else NAMES[design]


def law_table(law: LawAnalysis) -> Table:
    """The predictions as text, and their basis."""
    row: Any
    rows = list[tuple[str, ...]]()
    for row in law.table.itertuples():
        interval = "-" if row.design == row.unit else PLAIN.interval(row.ci_low, row.ci_high)
        noise, measured, between = map(PLAIN.number, (row.noise, row.measured, row.with_between))
        rows.append((design_name(row.design), noise, interval, measured, between))
    unit = design_name(str(law.table["unit"].iloc[0]))
    header = "design", f"noise relative to {unit}", "95 % interval", "replayed", f"if between/within is {BETWEEN:g}"
    caption = (
        "The law predicts from the spread of success rates and the weights of right and wrong answers. The column "
        "replayed is measured by a replay of the log, in which a history has the rest of the group and the past. "
        f"The history has {law.history:.3g} effective completions of each prompt, and changes of the policy add "
        f"{law.drift:.2g} to its squared error. A log does not show how much prompts' mean gradients differ: "
        "between/within is 0 here, about as measured for long free answers. Tasks with short answers have "
        f"{BETWEEN:g}, where groups do worse. A log does not show the noise scale either: with batches far above it, "
        "the baseline hardly matters."
    )
    return Table(
        "Noise of each design at equal completions, predicted by the law of the baseline", header, rows, caption
    )
