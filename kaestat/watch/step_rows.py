"""The completions of one step, as visits of prompts and as groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kaestat.logs.reward_log import RewardLog


@dataclass(frozen=True, eq=False)
class StepVisits:
    """The step's prompts, each visited once."""

    prompt: np.ndarray  # of int, shape (P,); distinct prompts, in ascending order
    place: np.ndarray  # of int, shape (N,); position of each completion's prompt
    count: np.ndarray  # of int, shape (P,)
    variance: np.ndarray  # shape (P,); sample variance of the rewards (ddof 1); NaN for a lone completion

    def mean(self, figures: np.ndarray) -> np.ndarray:
        """Mean over each prompt's completions, (..., N) becomes (..., P)."""
        rows, size = figures.reshape(-1, len(self.place)), len(self.prompt)
        place = self.place + size * np.arange(len(rows))[:, None]
        sums = np.bincount(place.ravel(), weights=rows.ravel(), minlength=len(rows) * size)
        return sums.reshape(*figures.shape[:-1], size) / self.count


@dataclass(frozen=True, eq=False)
class StepRows:
    """Completions of one step."""

    step: int
    prompt: np.ndarray  # of int, shape (N,); number of each completion's prompt in the run
    reward: np.ndarray  # shape (N,)
    # of int, shape (N,); number of each completion's group in the run; None for logs without groups
    stream: np.ndarray | None
    # Columns that can weigh the completions (`RewardLog.weightings`), the better one first
    weights: dict[str, np.ndarray]

    @classmethod
    def of_log(cls, log: RewardLog, number: dict[Any, int], stream: dict[Any, int]) -> Iterator[StepRows]:
        """The steps of a log in order; new prompts and groups enter the numbering of the run."""
        columns = log.arrays
        numbers = np.array([number.setdefault(prompt, len(number)) for prompt in log.prompts])
        prompt, steps, reward = numbers[columns["prompt"]], columns["step"], columns["reward"]
        streams = None
        if log.has_groups:
            names = np.array([stream.setdefault(group, len(stream)) for group in log.groups])
            streams = names[columns["group"]]
        weights = {name: log.completion_weights(name) for name in log.weightings}
        bounds = np.flatnonzero(np.diff(steps, prepend=steps[0] - 1, append=steps[-1] + 1))
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            part = slice(begin, end)
            yield cls(
                int(steps[begin]),
                prompt[part],
                reward[part],
                None if streams is None else streams[part],
                {name: column[part] for name, column in weights.items()},
            )

    @classmethod
    def joined(cls, parts: list[StepRows]) -> StepRows:
        """The parts of one step together, without groups and weights that some of them lack."""
        if len(parts) == 1:
            return parts[0]
        streams = [part.stream for part in parts if part.stream is not None]
        return cls(
            parts[0].step,
            np.concatenate([part.prompt for part in parts]),
            np.concatenate([part.reward for part in parts]),
            np.concatenate(streams) if len(streams) == len(parts) else None,
            {
                name: np.concatenate([part.weights[name] for part in parts])
                for name in parts[0].weights
                if all(name in part.weights for part in parts)
            },
        )

    def visits(self) -> StepVisits:
        """The completions by prompt."""
        prompt, place = np.unique(self.prompt, return_inverse=True)
        count = np.bincount(place)
        deviation = self.reward - (np.bincount(place, weights=self.reward) / count)[place]
        squares = np.bincount(place, weights=deviation**2)
        variance = np.where(count > 1, squares / np.maximum(count - 1, 1), np.nan)
        return StepVisits(prompt, place, count, variance)

    def dead_groups(self, highest: float) -> tuple[float, float]:
        """Share of groups of two or more whose rewards are equal, and equal to the highest; NaN without groups."""
        group = self.prompt.astype(np.int64)
        if self.stream is not None:
            group = group * (int(self.stream.max()) + 1) + self.stream
        order = np.argsort(group, kind="stable")
        first = np.flatnonzero(np.diff(group[order], prepend=group[order[0]] - 1))
        reward = self.reward[order]
        low, high = np.minimum.reduceat(reward, first), np.maximum.reduceat(reward, first)
        several = np.diff(first, append=len(reward)) > 1
        if not several.any():
            return math.nan, math.nan
        alike = (low == high)[several]
        return float(alike.mean()), float((alike & (high[several] >= highest)).mean())
