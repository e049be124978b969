"""The range of a run's rewards so far, which bounds what one completion can add to what prompts share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kaestat.core.checks import check_number, check_whole

ENOUGH = 64  # completions: of so few, equally spread, the next one lies a range away with a chance below 1e-15


@dataclass(frozen=True)
class SeenRewards:
    """Number and range of the rewards so far, each bounded by those before it.

    A reward counts as at most one whole range above or below the rewards of earlier calls. So a single reward at most
    doubles what a range allows, and a run whose rewards grow a hundredfold is followed after seven steps. Nothing is
    bounded while fewer than `ENOUGH` rewards were seen, or all were equal.
    """

    count: int = 0
    low: float = 0.0
    high: float = 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest that the next reward can count as."""
        span = self.high - self.low if self.count >= ENOUGH and self.high > self.low else math.inf
        return self.low - span, self.high + span

    def bounded(self, rewards: np.ndarray) -> np.ndarray:
        """The rewards as they count, the same array if none lies too far outside."""
        low, high = self.ends
        within = low <= rewards.min(initial=high) and rewards.max(initial=low) <= high
        return rewards if within else np.clip(rewards, low, high)

    def after(self, rewards: np.ndarray) -> SeenRewards:
        """With further rewards."""
        if not len(rewards):
            return self
        new = self.bounded(rewards)
        low, high = float(new.min()), float(new.max())
        if self.count:
            low, high = min(self.low, low), max(self.high, high)
        return SeenRewards(self.count + len(new), low, high)

    def plain(self) -> list[float]:
        """The numbers, for a state."""
        return [self.count, self.low, self.high]

    @classmethod
    def of_plain(cls, plain: list[float]) -> SeenRewards:
        """The inverse of `plain`; a ValueError if there are others."""
        count, *ends = plain
        low, high = (check_number("state: seen", end) for end in ends)
        if low > high:
            raise ValueError(f"state: rewards cannot lie between {low!r} and {high!r}; the state is corrupted.")
        return cls(check_whole("state: seen", count, least=0), low, high)
