"""The data kept for each prompt of a run: sums over its visits, one row for each method."""

from __future__ import annotations

import numpy as np

_FIRST_SIZE = 1024


class PromptSums:
    """Sums over visits by method and prompt, in arrays that grow with the prompts."""

    def __init__(self, n_methods: int):
        self._sums = np.zeros((n_methods, _FIRST_SIZE))
        self._size = np.zeros(_FIRST_SIZE)

    def add(self, prompt: np.ndarray, figures: np.ndarray, size: np.ndarray) -> None:
        """Add the visits of some distinct prompts, (P,): mean figures, (M, P), and how often each counts, (P,)."""
        if len(prompt) == 0:
            return
        self._grow(int(prompt.max()) + 1)
        self._sums[:, prompt] += size * figures
        self._size[prompt] += size

    @property
    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean figure of each prompt that has any, shape (M, C), and its size, shape (C,)."""
        known = np.flatnonzero(self._size)
        size = self._size[known]
        return self._sums[:, known] / size, size

    def state(self) -> dict[str, np.ndarray]:
        """The sums as plain arrays."""
        return {"sums": self._sums, "size": self._size}

    @classmethod
    def of_state(cls, state: dict[str, np.ndarray]) -> PromptSums:
        """The inverse of `state`."""
        found = cls(len(state["sums"]))
        found._sums, found._size = state["sums"].astype(float), state["size"].astype(float)
        return found

    def _grow(self, needed: int) -> None:
        more = max(needed, 2 * len(self._size)) - len(self._size)
        if needed > len(self._size):
            self._sums = np.pad(self._sums, ((0, 0), (0, more)))
            self._size = np.pad(self._size, (0, more))
