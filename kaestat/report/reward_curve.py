"""Mean reward of a run against its completions, and the completions that another run needs to reach it."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from kaestat.core.checks import check_seed
from kaestat.logs.reward_log import RewardLog

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
        place, n = np.arange(len(step)), len(step)
        first = np.searchsorted(step, step)
        part = np.unique(first * BINS // n, return_inverse=True)[1]
        n_parts = int(part.max()) + 1
        at = prompt.astype(np.int64) * n_parts + part
        shape = (len(log.prompts), n_parts)
        count = np.bincount(at, minlength=shape[0] * shape[1]).reshape(shape)
        total = np.bincount(at, weights=reward, minlength=shape[0] * shape[1]).reshape(shape)
        ends = np.append(place[1:][part[1:] != part[:-1]], n)
        return cls(log.prompts, total, count, ends)

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


def reaching(
    before: RewardCurve, after: RewardCurve, *, n_boot: int, seed: int
) -> tuple[float, tuple[float, float, float]]:
    """The final level of the run before, and the share of its completions that the run after needs to reach it.

    The level is the running mean of ``before`` at its end. The share, with its interval, is the first completions at
    which the running mean of ``after`` is at the level, over those of ``before``; infinite if it never is. The interval
    has percentiles of a bootstrap over prompts, a prompt of both runs being drawn for both; NaN without draws.
    """
    level = float(before.means()[-1])
    share = float(_shares(before, after, None, None))
    names = list(dict.fromkeys([*before.prompts, *after.prompts]))
    if n_boot == 0 or len(names) < 2:
        return level, (share, math.nan, math.nan)
    place = {name: k for k, name in enumerate(names)}
    sides = [np.array([place[name] for name in curve.prompts]) for curve in (before, after)]
    rng = check_seed(seed)
    n = len(names)
    drawn = np.array([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(n_boot)])
    found = np.sort(_shares(before, after, drawn[:, sides[0]], drawn[:, sides[1]]))
    found = found[~np.isnan(found)]  # draws without a prompt of one run
    # Order statistics, not means of two: one of them may be infinite.
    low, high = (float(found[min(int(q * len(found)), len(found) - 1)]) for q in QUANTILES)
    return level, (share, low, high)


def _shares(
    before: RewardCurve, after: RewardCurve, times_before: np.ndarray | None, times_after: np.ndarray | None
) -> np.ndarray:
    levels = before.means(times_before)
    level = levels[..., -1:]
    needed = [_first(curve, means >= level) for curve, means in ((before, levels), (after, after.means(times_after)))]
    with np.errstate(invalid="ignore"):
        return np.asarray(needed[1] / needed[0])


def _first(curve: RewardCurve, there: np.ndarray) -> np.ndarray:
    """Completions at the first part where something holds from a whole window on; infinite if nowhere."""
    whole = np.arange(there.shape[-1]) >= curve.window - 1
    found = there & whole
    return np.where(found.any(axis=-1), curve.completions[found.argmax(axis=-1)], np.inf)
