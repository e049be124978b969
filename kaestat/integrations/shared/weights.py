"""Weights of completions: those that a user may request, and what they are expected to be before they are known."""

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.group_mean import GroupMean
from kaestat.core.storage import write_atomically
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.steps.call import check_weights_matter
from kaestat.integrations.shared.tracked_estimator import looks_back

LENGTH_ONLY = ("none", "length")  # of trainers that hand no logits on


def check_weights(
    estimator: AdvantageEstimator, weights: Any, choices: Sequence[str] = LENGTH_ONLY, *, option: str = "weights"
) -> None:
    """Raise a ValueError for weights that are unknown, missing, unusable for the method, or cancelled by it.

    ``choices`` are the weights that the trainer can give, of which the first is none; ``option`` is the user's name for
    them.
    """
    baseline, method = estimator.baseline, estimator.method
    if not (isinstance(weights, str) and weights in choices):
        raise ValueError(f"{option}: unknown {weights!r}; choose one of {', '.join(choices)}.")
    none, *some = choices
    if weights == none and baseline.needs_weights:
        raise ValueError(
            f"{option}={weights}: method {method!r} averages by weights of completions; choose {' or '.join(some)}."
        )
    if weights != none:
        check_weights_matter(f"{option}={weights}", method, baseline, estimator.scale)


FILE = "expected_weights.json"
KEPT = 0.9  # of what has been seen, with every step
LEAST = 0.05  # of the mean weight: a line through rewards can go below 0
LARGEST_GROUP = 8  # of those in which rloo was no noisier; see the page of TRL


def expected_suffice(baseline: Baseline, group_size: int) -> bool:
    """Whether values need only the expected weights of a step's own completions.

    Single completions have values from the past, and `rloo` those of a few others. A batch's mean, and a history with
    groups, are noisier with expected weights.
    """
    if group_size == 1:
        return looks_back(baseline)
    return group_size <= LARGEST_GROUP and baseline == GroupMean(without_own=True)


class ExpectedWeights:
    """The expected weight of a completion by its reward: a line fitted to steps, newest counting most.

    With rewards 0 and 1 these are the two mean weights. Before the first data all completions weigh 1.
    """

    def __init__(self) -> None:
        self._sums = np.zeros(5)

    def __call__(self, rewards: np.ndarray) -> np.ndarray:
        """Weights of completions, shape (N,)."""
        count, total, squares, weight, crossed = self._sums
        if not weight > 0:
            return np.ones(len(rewards))
        mean, level = total / count, weight / count
        spread = squares / count - mean**2
        slope = (crossed / count - mean * level) / spread if spread > 1e-9 * squares / count else 0.0
        expected: np.ndarray = np.maximum(level + slope * (rewards - mean), LEAST * level)
        return expected

    def add(self, rewards: np.ndarray, weights: np.ndarray) -> None:
        """Update the fit with a step."""
        columns = (np.ones(len(rewards)), rewards, rewards**2, weights, weights * rewards)
        self._sums = KEPT * self._sums + np.array([column.sum() for column in columns])

    def save(self, folder: str) -> None:
        """Write the fit to a file of a checkpoint."""
        write_atomically(os.path.join(folder, FILE), json.dumps(self._sums.tolist()))

    def load(self, folder: str) -> None:
        """Load the fit from a checkpoint, if its run had one."""
        path = os.path.join(folder, FILE)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self._sums = np.array(json.load(file))
