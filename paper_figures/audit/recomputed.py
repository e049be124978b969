"""Every percentage of the paper's tables and text, computed again from the entries.

A printed percentage *is exact* if the printed entries give it, and *within rounding* if some entries that round to
the printed ones do. Everything else *differs*, and the note says how.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pandas as pd

from kaestat.smoothing.kernels import as_kernel
from paper_figures.shared import paper

BANDWIDTH = 10.0  # the paper's, in steps


@dataclass(frozen=True)
class Printed:
    """A number as printed."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)

    @property
    def half_unit(self) -> float:
        """Half a unit of the last digit."""
        return 0.5 * 10.0 ** Decimal(self.text).as_tuple().exponent

    @property
    def range(self) -> tuple[float, float]:
        """The numbers that round to it."""
        return self.value - self.half_unit, self.value + self.half_unit


def reduction_range(ours: Printed, theirs: Printed) -> tuple[float, float, float]:
    """``100 (1 - ours / theirs)`` of the printed numbers, and its ends over all that round to them."""
    (low, high), (their_low, their_high) = ours.range, theirs.range
    return (100 * (1 - ours.value / theirs.value), 100 * (1 - high / their_low), 100 * (1 - low / their_high))


def reductions() -> pd.DataFrame:
    """The percentage rows of Tables 1 and 2.

    Returns: ``table, dataset, step, versus, printed, recomputed, low, high, verdict``; low and high are the ends over
        entries that round to the printed ones.
    """
    rows = []
    for number in (1, 2):
        entries = paper.levels(number).set_index(["dataset", "step", "method"])["printed"]
        for row in paper.reductions(number).itertuples():
            ours, theirs = (Printed(entries[row.dataset, row.step, name]) for name in ("kae", row.versus))
            recomputed, low, high = reduction_range(ours, theirs)
            rows.append((number, row.dataset, row.step, row.versus, row.printed, recomputed, low, high))
    frame = pd.DataFrame(rows, columns=["table", "dataset", "step", "versus", "printed", "recomputed", "low", "high"])
    return frame.assign(verdict=[_verdict(Printed(r.printed), r.recomputed, r.low, r.high) for r in frame.itertuples()])


def averages() -> pd.DataFrame:
    """The average column of Tables 3 and 4: ``table, method, printed, recomputed, low, high, verdict``."""
    rows = []
    for (number, method), part in paper.accuracies().groupby(["table", "method"], sort=False):
        entries = [Printed(text) for text in part.loc[part["benchmark"] != "average", "printed"]]
        stated = part.loc[part["benchmark"] == "average", "printed"].item()
        low, high = (float(np.mean([entry.range[end] for entry in entries])) for end in (0, 1))
        recomputed = float(np.mean([entry.value for entry in entries]))
        rows.append((number, method, stated, recomputed, low, high, _verdict(Printed(stated), recomputed, low, high)))
    return pd.DataFrame(rows, columns=["table", "method", "printed", "recomputed", "low", "high", "verdict"])


def improvements() -> pd.DataFrame:
    """KAE's relative improvements in Tables 3 and 4.

    Returns: ``table, benchmark, versus, improvement_pct, kae_is_best``; the average column is among the benchmarks.
    """
    rows = []
    for (number, benchmark), part in paper.accuracies().groupby(["table", "benchmark"], sort=False):
        accuracy = part.set_index("method")["accuracy"]
        best = bool(accuracy["kae"] == accuracy.max())
        others = accuracy.drop("kae")
        rows += [
            (number, benchmark, versus, 100 * (accuracy["kae"] / level - 1), best) for versus, level in others.items()
        ]
    return pd.DataFrame(rows, columns=["table", "benchmark", "versus", "improvement_pct", "kae_is_best"])


def text_claims() -> pd.DataFrame:
    """The numbers that the text claims.

    Returns: ``claim, place, low, high, recomputed_low, recomputed_high, verdict, note``; low and high as printed.
    """
    rows = []
    for row in paper.claims().itertuples():
        values = [float(value) for value in QUANTITIES[row.quantity]()]
        low, high = min(values, default=np.nan), max(values, default=np.nan)
        verdict = _claim_verdict(row.low, row.high, low, high) if values else "not checkable"
        rows.append((row.claim, row.place, row.low, row.high, low, high, verdict, NOTES.get(row.quantity, "")))
    columns = ["claim", "place", "low", "high", "recomputed_low", "recomputed_high", "verdict", "note"]
    return pd.DataFrame(rows, columns=columns)


def _verdict(printed: Printed, recomputed: float, low: float, high: float) -> str:
    # A hair of slack: 8.125 printed as 8.13 or 8.12 is right either way.
    if abs(recomputed - printed.value) <= printed.half_unit * (1 + 1e-9):
        return "exact"
    floor, ceiling = printed.range
    return "within rounding" if low <= ceiling and high >= floor else "differs"


def _claim_verdict(claimed_low: str, claimed_high: str, low: float, high: float) -> str:
    """Whether the range found is the claimed one, to the digits claimed; without an upper end, lies above it."""
    if not claimed_high:
        return "holds" if low >= float(claimed_low) else "differs"
    ends = ((Printed(claimed_low), low), (Printed(claimed_high), high))
    return "holds" if all(abs(found - claimed.value) <= claimed.half_unit for claimed, found in ends) else "differs"


def _stated_reductions(number: int, versus: str) -> pd.Series:
    return reductions().query("table == @number and versus == @versus")["recomputed"]


def _won(number: int) -> pd.DataFrame:
    return improvements().query("table == @number and kae_is_best")


def _mean_improvement(number: int) -> list[float]:
    return [improvements().query("table == @number and benchmark != 'average'")["improvement_pct"].mean()]


QUANTITIES: dict[str, Callable[[], Iterable[float]]] = {
    "value_reduction_grpo": lambda: _stated_reductions(1, "grpo"),
    "value_reduction_reinforce": lambda: _stated_reductions(1, "reinforce++"),
    "past_steps": lambda: [int(np.sum(as_kernel("triangular")(np.arange(1, 100) / BANDWIDTH) > 0))],
    "gradient_reduction_grpo": lambda: _stated_reductions(2, "grpo"),
    "gradient_reduction_reinforce": lambda: _stated_reductions(2, "reinforce++"),
    "mean_improvement_math": lambda: _mean_improvement(3),
    "mean_improvement_dapo": lambda: _mean_improvement(4),
    "largest_improvement": lambda: [improvements()["improvement_pct"].max()],
    "improvements_won_math": lambda: _won(3)["improvement_pct"],
    "improvements_won_dapo": lambda: _won(4)["improvement_pct"],
    "columns_won_math": lambda: [_won(3)["benchmark"].nunique()],
    "columns_won_dapo": lambda: [_won(4)["benchmark"].nunique()],
    "figure": list,
}
NOTES = {
    "value_reduction_grpo": "Table 1 says 63.6 % to 73.3 %.",
    "gradient_reduction_reinforce": "The lower end is 32.61 %: 33 in whole per cent, not 32.",
    "past_steps": "At bandwidth 10 the triangular kernel weighs 9 past steps; 4 are left at bandwidth 5.",
    "mean_improvement_math": "The mean of 18 relative changes (6 benchmarks, 3 methods), a third of it from AIME25. "
    "The average column itself rises by 2.9 % to 4.0 %.",
    "mean_improvement_dapo": "The mean of 18 relative changes, three quarters of it from AIME25. The average column "
    "itself rises by 2.4 % to 8.8 %.",
    "largest_improvement": "AIME25 against Dr. GRPO: 171 against 95 of 960.",
    "improvements_won_math": "Over the columns in which KAE is best; over all columns from -2.7 % on.",
    "improvements_won_dapo": "Over the columns in which KAE is best; over all columns from -4.8 % on.",
    "figure": "Read off a figure, whose data the source does not hold.",
}
