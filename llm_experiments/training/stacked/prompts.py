"""Which prompts a run samples at each step."""

import numpy as np


class Epochs:
    """Every prompt once in random order, again and again, in a new order each time."""

    def __init__(self, n_prompts: int, group_size: int, seed: int):
        self._size, self._group_size, self._rng = n_prompts, group_size, np.random.default_rng(seed)
        self._left: list[int] = []

    def batch(self, n_groups: int) -> np.ndarray:
        """Rows of the next ``n_groups`` different prompts, groups side by side, shape (N,)."""
        while len(self._left) < n_groups:
            self._left = [*self._left, *self._rng.permutation(self._size).tolist()]
        rows, self._left = self._left[:n_groups], self._left[n_groups:]
        return np.repeat(rows, self._group_size)
