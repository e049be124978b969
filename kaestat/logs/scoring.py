"""Risks of many methods on one log, from as few replays as they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.logs.replay import copies_at_once, replayed
from kaestat.logs.reward_log import RewardLog
from kaestat.reach import fixed_bandwidth
from kaestat.visit_error import unbiased_error

BANDWIDTHS_AT_ONCE = 6  # they share the past that the widest of them needs


@dataclass(frozen=True, eq=False)
class Batch:
    """Methods whose risks come from one replay.

    Attributes
    ----------
    baseline : Baseline
    columns : tuple of tuple of int
        For each copy of the baseline (one, or one for each bandwidth), the positions of its methods.
    again : bool
        Whether the log is also replayed without each group of prompts.
    """

    baseline: Baseline
    columns: tuple[tuple[int, ...], ...]
    again: bool

    def risks(
        self, log: RewardLog, kept: np.ndarray, eligible: np.ndarray, *, absolute: bool
    ) -> Iterator[tuple[tuple[int, ...], np.ndarray, np.ndarray]]:
        """Replay the log, whole and, if `again`, without each group of prompts.

        Parameters
        ----------
        log : RewardLog
        kept : ndarray of bool, shape (1 + K, number of prompts)
            The prompts of the whole log, which are all, and of the log without each of K groups.
        eligible : ndarray of bool, shape (W,)
            Which visits are scored.
        absolute : bool
            See `visit_risks`.

        Yields
        ------
        columns : tuple of int
            The methods that have these risks.
        whole : ndarray, shape (C,)
            Mean risk of each prompt that is scored.
        without : ndarray, shape (K, C)
            The same without each group, meaningless at prompts of the group.
        """
        if self.again:
            whole, *without = _prompt_means(
                log, visit_risks(log, self.baseline, absolute=absolute, kept=kept), eligible
            )
            yield self.columns[0], whole, np.array(without)
            return
        risks = visit_risks(log, self.baseline, absolute=absolute, copies=len(self.columns))
        for columns, whole in zip(self.columns, _prompt_means(log, risks, eligible), strict=True):
            yield columns, whole, np.broadcast_to(whole, (len(kept) - 1, len(whole)))


def batches(
    log: RewardLog, methods: Sequence[str | Baseline], baselines: Sequence[Baseline], *, again: bool
) -> list[Batch]:
    """Equal specifications are replayed once; kernel methods that differ in a fixed bandwidth alone, together."""
    same: dict[str | int, list[int]] = {}
    for column, method in enumerate(methods):
        same.setdefault(method if isinstance(method, str) else column, []).append(column)
    alone, grids = [], list[tuple[Baseline, list[tuple[float, tuple[int, ...]]]]]()
    for columns in same.values():
        baseline = baselines[columns[0]]
        bandwidth = fixed_bandwidth(baseline)
        without = again and baseline.pools_prompts
        if without or bandwidth is None or not isinstance(baseline, KernelBaseline):
            alone.append(Batch(baseline, (tuple(columns),), without))
            continue
        at_one = replace(baseline, bandwidth=1.0)
        grid = next((grid for like, grid in grids if like == at_one), None)
        if grid is None:
            grid = []
            grids.append((at_one, grid))
        grid.append((bandwidth, tuple(columns)))
    return [*alone, *(batch for like, grid in grids for batch in _grid_batches(log, like, sorted(grid)))]


def _grid_batches(log: RewardLog, baseline: Baseline, grid: list[tuple[float, tuple[int, ...]]]) -> list[Batch]:
    assert isinstance(baseline, KernelBaseline)
    size = copies_at_once(log, replace(baseline, bandwidth=grid[-1][0]), BANDWIDTHS_AT_ONCE)
    parts = (grid[start : start + size] for start in range(0, len(grid), size))
    return [
        Batch(baseline.at_each([bandwidth for bandwidth, _ in part]), tuple(columns for _, columns in part), False)
        for part in parts
    ]


def _prompt_means(log: RewardLog, risk: np.ndarray, eligible: np.ndarray) -> np.ndarray:
    """Mean over the eligible visits of each prompt that has any; (L, W) to (L, C)."""
    prompt = log.prompt_units.visit_prompt[eligible]
    n = np.bincount(prompt)
    sums = np.array([np.bincount(prompt, weights=row) for row in risk[:, eligible]])
    return sums[:, n > 0] / n[n > 0]


def visit_risks(
    log: RewardLog, baseline: Baseline, *, absolute: bool, copies: int = 1, kept: np.ndarray | None = None
) -> np.ndarray:
    """Unbiased squared error of the values at each visit of `RewardLog.prompt_units`, shape (L, W).

    Parameters
    ----------
    log, baseline, copies, kept
        See `kaestat.logs.replay.replayed`.
    absolute : bool
        Subtract the reward variance (NaN where a visit has one completion); otherwise the result is the MSE plus the
        reward variance, which is the same for all baselines.
    """
    units = log.prompt_units
    rows = copies if kept is None else len(kept)
    loss, own = np.empty((2, rows, len(units.first)))
    at_once = rows if kept is None else copies_at_once(log, baseline, rows)
    for start in range(0, rows, at_once):
        some = slice(start, start + at_once)
        for part in replayed(log, baseline, copies=copies, kept=None if kept is None else kept[some]):
            inside = slice(*np.searchsorted(units.first, [part.completions.start, part.completions.stop]))
            first = units.first[inside] - part.completions.start
            error = units.reward[part.completions] - part.values
            loss[some, inside] = np.add.reduceat(error * error, first, axis=-1)
            own[some, inside] = np.add.reduceat(part.own_derivatives, first, axis=-1)
    return unbiased_error(loss / units.counts, own / units.counts, units.variance, absolute=absolute)
