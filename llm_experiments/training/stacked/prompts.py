"""Which prompts a run samples at each step."""

import numpy as np


class Epochs:
    """Every prompt once in random order, again and again, in a new order each time."""

    def __init__(self, n_prompts: int, group_size: int, seed: int):
        self._size, self._group_size, self._rng = n_prompts, group_size, np.random.default_rng(seed)
        self._left: list[int] = []

    def batch(self, n_groups: int) -> np.ndarray:
        """Rows of the next ``n_groups`` different prompts, groups side by side, shape (N,).

        What is left of an epoch comes last in the next, so that no batch has a prompt twice.
        Raises ValueError if there are not so many prompts.
        """
        if n_groups > self._size:
            raise ValueError(f"completions: a step has {n_groups} groups, but there are {self._size} prompts for them.")
        if len(self._left) < n_groups:
            fresh, left = self._rng.permutation(self._size).tolist(), set(self._left)
            self._left = [*self._left, *sorted(fresh, key=left.__contains__)]
        rows, self._left = self._left[:n_groups], self._left[n_groups:]
        return np.repeat(rows, self._group_size)
