"""Weights of completions before they are known, for trainers whose training pass gives them."""

from __future__ import annotations

import json
import os

import numpy as np

from kaestat.core.storage import write_atomically

FILE = "expected_weights.json"
KEPT = 0.9  # of what has been seen, with every step
LEAST = 0.05  # of the mean weight: a line through rewards can go below 0


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
