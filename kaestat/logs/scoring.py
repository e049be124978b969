"""Risks of many methods on one log, from as few replays as possible."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.visit_error import unbiased_error
from kaestat.logs.replay import replayed
from kaestat.logs.reward_log import RewardLog


@dataclass(frozen=True)
class Measure:
    """The quantity measured at each visit: the error of the value, or the noise of the gradient."""

    # Subtract the reward variance from the error (NaN for a visit with one completion); otherwise the result is the MSE
    # plus the reward variance, which is the same for all baselines. Nothing is subtracted from noise
    absolute: bool
    # W of the noise ``W (Z - V)^2``, which is averaged over completions: a visit's weight is its number of completions.
    # For the error of the value, all visits of a prompt have equal weights
    column: str | None = None

    def visit_sizes(self, log: RewardLog) -> np.ndarray:
        """Weight of each visit of `RewardLog.prompt_units` within its prompt, shape (W,)."""
        counts = log.prompt_units.counts
        return np.ones(len(counts)) if self.column is None else counts.astype(float)


@dataclass(frozen=True, eq=False)
class Scored:
    """A row of the tables."""

    name: Any  # Rows with the same text as name are one row
    baseline: Baseline
    averaged: str | None = None  # The weights of its averages

    @property
    def is_specified(self) -> bool:
        """Whether the row is named by text."""
        return isinstance(self.name[0] if isinstance(self.name, tuple) else self.name, str)


def rows_alike(rows: Sequence[Scored]) -> list[list[int]]:
    """The positions of rows with the same baseline and weights, which one replay serves."""
    alike: dict[Any, list[int]] = {}
    for column, row in enumerate(rows):
        alike.setdefault((row.baseline, row.averaged) if row.is_specified else column, []).append(column)
    return list(alike.values())


def prompt_means(log: RewardLog, row: Scored, eligible: np.ndarray, measure: Measure) -> np.ndarray:
    """Mean risk over the eligible visits of each prompt that has any, each as often as its size says; (C,)."""
    prompt, size = log.prompt_units.visit_prompt[eligible], measure.visit_sizes(log)[eligible]
    n = np.bincount(prompt, weights=size)
    sums = np.bincount(prompt, weights=size * visit_risks(log, row, measure)[eligible])
    return sums[n > 0] / n[n > 0]


def _counts_suffice(log: RewardLog, row: Scored, measure: Measure) -> bool:
    """Whether equal rewards of a prompt's visit may be served, and scored, as one."""
    weighted = row.averaged is not None or measure.column is not None
    return row.baseline.counts_suffice and not weighted and log.units(row.baseline.unit) is log.prompt_units


def visit_risks(log: RewardLog, row: Scored, measure: Measure) -> np.ndarray:
    """Unbiased error of the values, or noise of the gradient, at each visit of `RewardLog.prompt_units`, shape (W,).

    A ValueError for noise with values that contain the completion's own reward.
    """
    baseline, visits = row.baseline, log.prompt_units
    weight = None if measure.column is None else log.completion_weights(measure.column)
    units, scored, times = log.units(baseline.unit, row.averaged), visits, weight
    if _counts_suffice(log, row, measure):
        units = scored = visits.condensed
        times = units.times
    loss, own = np.empty(len(visits.first)), np.zeros(len(visits.first))
    for completions, values, derivatives in replayed(log, baseline, units):
        inside = slice(*np.searchsorted(scored.first, [completions.start, completions.stop]))
        first = scored.first[inside] - completions.start
        error = (scored.reward[completions] - values) ** 2
        many = 1.0 if times is None else times[completions]
        loss[inside] = np.add.reduceat(error * many, first)
        if np.any(derivatives):
            own[inside] = np.add.reduceat(np.broadcast_to(derivatives, error.shape) * many, first)
    if weight is None:
        return unbiased_error(loss / visits.counts, own / visits.counts, visits.variance, absolute=measure.absolute)
    if own.any():
        name = row.name[0] if isinstance(row.name, tuple) else row.name
        raise ValueError(
            f"{name}: contains the completion's own reward, so that its gradient is biased, and the noise that it "
            "leaves is not comparable. Leave it out."
        )
    return loss / visits.counts
