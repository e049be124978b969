"""Risks of many methods on one log, from as few replays as possible."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.core.visit_error import unbiased_error
from kaestat.estimator.reach import fixed_bandwidth
from kaestat.logs.replay import copies_at_once, replayed
from kaestat.logs.reward_log import RewardLog

BANDWIDTHS_AT_ONCE = 6  # they share the past that the widest of them needs
LARGEST_SUMS = 4_000_000  # visits times bandwidths whose kernel sums, 64 bytes each, are in memory at a time


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


@dataclass(frozen=True, eq=False)
class Batch:
    """Methods whose risks come from the same replay."""

    row: Scored  # One of the rows, with the common baseline
    # For each copy of the baseline (one, or one for each bandwidth), the positions of its methods
    columns: tuple[tuple[int, ...], ...]

    @property
    def baseline(self) -> Baseline:
        """The baseline to replay."""
        return self.row.baseline

    @property
    def past(self) -> str:
        """A text that identifies the sums over the past; batches with the same text can share them."""
        baseline = self.row.baseline
        return f"{baseline.weighting} {baseline.selector}" if isinstance(baseline, KernelBaseline) else ""

    def risks(
        self, log: RewardLog, eligible: np.ndarray, measure: Measure
    ) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """The positions of the methods that have the same risks, and the mean risk of each scored prompt, (C,)."""
        risks = visit_risks(log, self.row, measure, copies=len(self.columns))
        yield from zip(self.columns, _prompt_means(log, risks, eligible, measure.visit_sizes(log)), strict=True)


def batches(log: RewardLog, rows: Sequence[Scored]) -> list[Batch]:
    """The methods in batches: equal baselines together, and kernel methods that differ only in a fixed bandwidth.

    Batches with the same kernel and bandwidths are adjacent, so that one can reuse the sums over the past of the other.
    """
    same: dict[Any, list[int]] = {}
    for column, row in enumerate(rows):
        same.setdefault((row.baseline, row.averaged) if row.is_specified else column, []).append(column)
    alone, grids = [], list[tuple[Scored, list[tuple[float, tuple[int, ...]]]]]()
    for columns in same.values():
        row = rows[columns[0]]
        baseline = row.baseline
        bandwidth = fixed_bandwidth(baseline)
        if bandwidth is None or not isinstance(baseline, KernelBaseline):
            alone.append(Batch(row, (tuple(columns),)))
            continue
        at_one = replace(baseline, bandwidth=1.0)
        alike = (g for like, g in grids if like.baseline == at_one and like.averaged == row.averaged)
        grid = next(alike, None)
        if grid is None:
            grid = []
            grids.append((replace(row, baseline=at_one), grid))
        grid.append((bandwidth, tuple(columns)))
    together = [batch for like, grid in grids for batch in _grid_batches(log, like, sorted(grid))]
    return [*alone, *sorted(together, key=lambda batch: batch.past)]


def _grid_batches(log: RewardLog, row: Scored, grid: list[tuple[float, tuple[int, ...]]]) -> list[Batch]:
    baseline = row.baseline
    assert isinstance(baseline, KernelBaseline)
    size = copies_at_once(log, replace(baseline, bandwidth=grid[-1][0]), BANDWIDTHS_AT_ONCE)
    size = max(1, min(size, LARGEST_SUMS // log.n_visits))
    parts = (grid[start : start + size] for start in range(0, len(grid), size))
    return [
        Batch(
            replace(row, baseline=baseline.at_each([bandwidth for bandwidth, _ in part])),
            tuple(columns for _, columns in part),
        )
        for part in parts
    ]


def _counts_suffice(log: RewardLog, row: Scored, measure: Measure) -> bool:
    """Whether equal rewards of a prompt's visit may be served, and scored, as one."""
    weighted = row.averaged is not None or measure.column is not None
    return row.baseline.counts_suffice and not weighted and log.units(row.baseline.unit) is log.prompt_units


def _prompt_means(log: RewardLog, risk: np.ndarray, eligible: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Mean over the eligible visits of each prompt that has any, each as often as its size says; (L, W) to (L, C)."""
    prompt, size = log.prompt_units.visit_prompt[eligible], size[eligible]
    n = np.bincount(prompt, weights=size)
    sums = np.array([np.bincount(prompt, weights=size * row) for row in risk[:, eligible]])
    return sums[:, n > 0] / n[n > 0]


def _sums(entries: np.ndarray, first: np.ndarray, width: int) -> np.ndarray:
    """Sums of the entries of each visit, which begin at ``first``; the same number of each, unless ``width`` is 0."""
    if not width:
        return np.add.reduceat(entries, first, axis=-1)
    found = entries[..., ::width].copy()
    for place in range(1, width):
        found += entries[..., place::width]
    return found


def visit_risks(log: RewardLog, row: Scored, measure: Measure, *, copies: int = 1) -> np.ndarray:
    """Unbiased error of the values, or noise of the gradient, at each visit of `RewardLog.prompt_units`, shape (L, W).

    ``copies`` is as for `kaestat.logs.replay.replayed`. A ValueError for noise with values that contain
    the completion's own reward.
    """
    baseline = row.baseline
    weight = None if measure.column is None else log.completion_weights(measure.column)
    units, times = log.prompt_units, weight
    condensed = units.condensed if _counts_suffice(log, row, measure) else None
    if condensed is not None:
        units, times = condensed, condensed.times
    loss = np.empty((copies, len(units.first)))
    own: np.ndarray | None = None
    width = 0 if units.times is None else int(units.entries[0])  # equal for all visits
    for part in replayed(log, baseline, row.averaged, copies=copies, units=condensed):
        inside = slice(*np.searchsorted(units.first, [part.completions.start, part.completions.stop]))
        first = units.first[inside] - part.completions.start
        error = units.reward[part.completions] - part.values
        error *= error
        if times is not None:
            error *= times[part.completions]
        loss[:, inside] = _sums(error, first, width)
        if np.any(part.own_derivatives):
            derivatives = np.broadcast_to(part.own_derivatives, error.shape)
            if times is not None and weight is None:
                derivatives = derivatives * times[part.completions]
            own = np.zeros_like(loss) if own is None else own
            own[:, inside] = _sums(derivatives, first, width)
    loss /= units.counts
    if weight is None:
        per_completion = 0.0 if own is None else own / units.counts
        return unbiased_error(loss, per_completion, log.prompt_units.variance, absolute=measure.absolute)
    if own is not None:
        name = row.name[0] if isinstance(row.name, tuple) else row.name
        raise ValueError(
            f"{name}: contains the completion's own reward, so that its gradient is biased, and the noise that it "
            "leaves is not comparable. Leave it out."
        )
    return loss
