"""The main facts about a log, in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kaestat.logs.reward_log import RewardLog
from kaestat.logs.tuning import return_gaps


@dataclass(frozen=True)
class LogFacts:
    """The main facts about a log."""

    n_completions: int
    n_prompts: int
    n_visits: int
    n_steps: int
    group_size: tuple[int, int]  # Smallest and largest number of completions of a group, and of visits of a prompt
    visits_per_prompt: tuple[int, int]
    time_axis: str
    binary: bool  # Whether every reward is 0 or 1, so that the mean reward is an accuracy
    # Mean reward over the first and the last steps that hold a tenth of the completions (`ends_of`)
    reward_start: float
    reward_end: float
    return_gap: float | None  # Median number of steps between two visits of a prompt; None where none comes back
    # Share of groups of two completions or more whose rewards are all alike; None where there are none
    dead_groups: float | None

    @classmethod
    def of(cls, log: RewardLog) -> LogFacts:
        """The facts about a log."""
        reward = log.arrays["reward"]
        start, end = ends_of(log)
        alike, several = groups_alike(log)
        visits = np.bincount(log.prompt_units.visit_prompt)
        return cls(
            n_completions=len(reward),
            n_prompts=len(log.prompts),
            n_visits=log.n_visits,
            n_steps=log.n_steps,
            group_size=(int(log.group_sizes.min()), int(log.group_sizes.max())),
            visits_per_prompt=(int(visits.min()), int(visits.max())),
            time_axis=log.time_axis,
            binary=bool(np.isin(reward, (0.0, 1.0)).all()),
            reward_start=float(reward[start].mean()),
            reward_end=float(reward[end].mean()),
            return_gap=float(np.median(return_gaps(log))) if visits.max() > 1 else None,
            dead_groups=float(alike[several].mean()) if several.any() else None,
        )


def ends_of(log: RewardLog) -> tuple[slice, slice]:
    """The completions of the first and last whole steps that hold at least a tenth of them each."""
    step = log.arrays["step"]
    tenth = max(1, len(step) // 10)
    return slice(np.searchsorted(step, step[tenth - 1], side="right")), slice(np.searchsorted(step, step[-tenth]), None)


def groups_alike(log: RewardLog) -> tuple[np.ndarray, np.ndarray]:
    """Which groups of a log have rewards that are all alike, and which have several completions."""
    units = log.group_units
    low, high = (pick.reduceat(units.reward, units.first) for pick in (np.minimum, np.maximum))
    return low == high, units.counts > 1
