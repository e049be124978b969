"""A sampler's knowledge of its prompts: the newest prediction of each, made at its last visit."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields, replace

import numpy as np

from kaestat.core.weighted_noise import PARTS, of_population
from kaestat.estimator.prediction import Population, Prediction


@dataclass(frozen=True, eq=False)
class Pool:
    """Predictions for all prompts, each as of the step after its last visit; shape (P,) each.

    The pool avoids a query of the whole history at each step: between visits only their age changes, and ``newest``
    holds that. The columns are as in `Prediction`, and 0 for prompts never seen; a ``newest`` of -1 is none, and a
    prior's visits may have negative steps, which count. ``weighted`` has shape (P, 3), or (P, 0) while completions have
    no weights.
    """

    value: np.ndarray
    standard_error: np.ndarray
    effective_completions: np.ndarray
    reward_variance: np.ndarray
    newest: np.ndarray
    weighted: np.ndarray

    @classmethod
    def unknown(cls, size: int) -> Pool:
        """The pool of prompts without any data."""
        value, error, completions, variance = np.zeros((4, size))
        return cls(value, error, completions, variance, np.full(size, -1, dtype=np.int32), np.zeros((size, 0)))

    def with_weights(self) -> Pool:
        """The pool with columns for weights."""
        return self if self.weighted.shape[1] else replace(self, weighted=np.zeros((len(self.newest), PARTS)))

    def extended(self, size: int) -> Pool:
        """The pool with so many new prompts at the end."""
        new = Pool.unknown(size)
        new = new.with_weights() if self.weighted.shape[1] else new
        return Pool(*(np.concatenate([getattr(self, f.name), getattr(new, f.name)]) for f in fields(self)))

    def take(self, rows: np.ndarray | slice) -> Pool:
        """The pool of the prompts at these positions."""
        return Pool(*(getattr(self, f.name)[rows] for f in fields(self)))

    def put(self, rows: np.ndarray, prediction: Prediction, step: int) -> None:
        """Replace the predictions of the prompts at these positions, visited at ``step``."""
        self.value[rows] = prediction.value
        self.standard_error[rows] = prediction.standard_error
        self.effective_completions[rows] = prediction.effective_completions
        self.reward_variance[rows] = prediction.reward_variance
        self.newest[rows] = step
        if prediction.weighted is not None:
            self.weighted[rows] = prediction.weighted

    def at(self, step: int, prompt_ids: list[Hashable], population: Population, shrunk: bool) -> Prediction:
        """The predictions for a step."""
        seen, known = (self.newest >= 0) | (self.effective_completions > 0), population.n_prompts > 0

        def of(stored: np.ndarray, otherwise: float) -> np.ndarray:
            return np.where(seen, stored, otherwise)

        weighted = None
        if population.means and self.weighted.shape[1]:
            weighted = np.where(seen[:, None], self.weighted, of_population(population.means))
        return Prediction(
            prompt_ids=prompt_ids,
            value=of(self.value, population.mean if known else 0.0),
            standard_error=of(self.standard_error, population.spread**0.5 if known else np.inf),
            effective_completions=self.effective_completions,
            reward_variance=of(self.reward_variance, population.noise),
            lag=of(step - self.newest.astype(float), np.inf),
            shrunk=shrunk,
            population=population,
            weighted=weighted,
        )

    def plain(self) -> dict[str, np.ndarray]:
        """The pool as arrays by name (copies)."""
        return {f.name: getattr(self, f.name).copy() for f in fields(self)}

    @classmethod
    def of_plain(cls, state: dict[str, np.ndarray], size: int) -> Pool:
        """The inverse of `plain`; a ValueError if the arrays do not match the number of prompts."""
        names = {f.name for f in fields(cls)}
        if not isinstance(state, dict) or set(state) != names:
            raise ValueError("state: not the predictions of a PromptSampler; the state was altered.")
        for name, array in state.items():
            wanted = "i" if name == "newest" else "f"
            shapes = [(size, 0), (size, PARTS)] if name == "weighted" else [(size,)]
            if not isinstance(array, np.ndarray) or array.shape not in shapes or array.dtype.kind != wanted:
                raise ValueError(
                    f"state: {name} does not fit the {size} prompts of the sampler; the state was altered."
                )
        return cls(**{name: array.copy() for name, array in state.items()})
