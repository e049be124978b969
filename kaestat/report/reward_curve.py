"""Mean reward of a run against its completions, and the completions that another run needs to reach it."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from kaestat.core.checks import check_seed
from kaestat.logs.reward_log import RewardLog
from kaestat.report.unit import Estimate

BINS = 50
WINDOW = 0.1  # of the parts, for a running mean
QUANTILES = (0.025, 0.975)


@dataclass(frozen=True, eq=False)
class RewardCurve:
    """Rewards of a run by prompt and part of the run."""

    prompts: list[Hashable]  # length P
    # shape (P, B); sum of the rewards, and number of completions, in each of B parts of the run of equally many
    # completions
    total: np.ndarray
    count: np.ndarray
    completions: np.ndarray  # shape (B,); completions up to the end of each part

    @classmethod
    def of(cls, log: RewardLog) -> RewardCurve:
        """The curve of a log, in at most `BINS` parts; a step is never cut."""
        prompt, step, reward = (log.arrays[name] for name in ("prompt", "step", "reward"))
        first = np.searchsorted(step, step)
        part = np.unique(first * BINS // len(step), return_inverse=True)[1]
        shape = len(log.prompts), int(part[-1]) + 1
        total, count = np.zeros(shape), np.zeros(shape)
        np.add.at(total, (prompt, part), reward)
        np.add.at(count, (prompt, part), 1)
        return cls(log.prompts, total, count, np.cumsum(np.bincount(part)))

    @property
    def window(self) -> int:
        """Parts of a running mean: a tenth of them, or one if the run has few steps."""
        return max(1, round(WINDOW * len(self.completions)))

    def means(self, times: np.ndarray | None = None) -> np.ndarray:
        """Running mean of the rewards over `window` parts, (..., B), with each prompt so many ``times``, (..., P)."""
        times = np.ones(len(self.prompts)) if times is None else times
        total, count = (np.cumsum(times @ sums, axis=-1) for sums in (self.total, self.count))
        for sums in (total, count):
            sums[..., self.window :] -= sums[..., : -self.window].copy()
        return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)

    def reaches(self, level: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """Completions at the first whole window whose mean is at a level; infinite if none is."""
        there = (self.means(times) >= level) & (np.arange(len(self.completions)) >= self.window - 1)
        return np.where(there.any(axis=-1), self.completions[there.argmax(axis=-1)], np.inf)


def reaching(before: RewardCurve, after: RewardCurve, *, n_boot: int, seed: int) -> tuple[float, Estimate]:
    """The final running mean of the run before, and the share of its completions that the run after needs for it."""
    rng, share = check_seed(seed), float(_shares(before, after))
    names = list(dict.fromkeys([*before.prompts, *after.prompts]))
    n, level = len(names), float(before.means()[-1])
    if n_boot == 0 or n < 2:
        return level, (share, math.nan, math.nan)
    place = {name: k for k, name in enumerate(names)}
    drawn = np.array([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(n_boot)])
    times = [drawn[:, [place[name] for name in curve.prompts]] for curve in (before, after)]
    shares = np.sort(_shares(before, after, *times))
    shares = shares[~np.isnan(shares)]  # draws without a prompt of one run
    # Order statistics, not means of two: one of them may be infinite.
    low, high = (float(shares[min(int(q * len(shares)), len(shares) - 1)]) for q in QUANTILES)
    return level, (share, low, high)


def _shares(
    before: RewardCurve,
    after: RewardCurve,
    times_before: np.ndarray | None = None,
    times_after: np.ndarray | None = None,
) -> np.ndarray:
    level = before.means(times_before)[..., -1:]
    with np.errstate(invalid="ignore"):
        return after.reaches(level, times_after) / before.reaches(level, times_before)
