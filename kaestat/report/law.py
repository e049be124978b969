"""The predictions of the law of the baseline on a log, and their table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from kaestat.logs.baseline_law import BETWEEN, law_applies, law_of_log
from kaestat.logs.reward_log import RewardLog
from kaestat.report.document import Table
from kaestat.report.unit import PLAIN, Estimate


@dataclass(frozen=True, eq=False)
class LawAnalysis:
    """The law's predictions for a log."""

    table: pd.DataFrame  # `kaestat.logs.baseline_law.LawPrediction.table`
    threshold: Estimate  # `kaestat.theory.PromptMoments.threshold`
    history: float  # `kaestat.logs.baseline_law.LawInputs`; the mean of ``drift``
    drift: float
    none_to_value: Estimate  # Noise of no baseline over that of the value

    @classmethod
    def of(cls, log: RewardLog, *, seed: int, min_visits: int) -> LawAnalysis | None:
        """The predictions for a log with weights or lengths; None if the law does not apply."""
        if not law_applies(log, min_visits=min_visits):
            return None
        law = law_of_log(log, seed=seed, min_visits=min_visits)
        drift, ratio = float(law.inputs.drift.mean()), law.ratio("none", "value")
        return cls(law.table(), law.threshold, law.inputs.history, drift, ratio)


def law_table(law: LawAnalysis) -> Table:
    """The predictions as text, and their basis."""
    row: Any
    rows = list[tuple[str, ...]]()
    for row in law.table.itertuples():
        interval = "-" if row.design == row.unit else PLAIN.interval(row.ci_low, row.ci_high)
        rows.append((row.design, PLAIN.number(row.noise), interval, PLAIN.number(row.with_between)))
    header = "design", f"relative to {law.table['unit'].iloc[0]}", "95 % interval", f"if between/within is {BETWEEN:g}"
    caption = (
        "The law predicts from the spread of success rates and the weights of right and wrong answers. Numbers after "
        "rloo and grpo are sizes of groups, value and best the value and the best baseline themselves, and none_signed "
        f"is no baseline with rewards -1 and 1. The history has {law.history:.3g} effective completions of each "
        f"prompt, and changes of the policy add {law.drift:.2g} to its squared error. A log does not show how much "
        "prompts' mean gradients differ: between/within is 0 here, about as measured for long free answers. Tasks with "
        f"short answers have {BETWEEN:g}, where groups do worse. A log does not show the noise scale either: with "
        "batches far above it, the baseline hardly matters."
    )
    title = "Noise of each design at equal completions, predicted by the law of the baseline"
    return Table(title, header, rows, caption)
