"""The prompts sampled at one step, their probabilities, and the corrections for them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kaestat.core.storage import decode_keys, encode_keys
from kaestat.estimator.prediction import Prediction
from kaestat.history.fields import stored_step

ARRAYS = ("counts", "expected", "inclusion", "correction")
CORRECTIONS = ("full", "clipped", "none")
CLIP = 4.0  # of "clipped"


@dataclass(frozen=True, eq=False)
class Plan:
    """The expected completions of every prompt under a policy, before the draw."""

    prediction: Prediction  # Predictions for every prompt that can be drawn, shape (P,)
    share: np.ndarray  # shape (P,); weights pi of the prompts in the objective; they sum to 1
    expected: np.ndarray  # shape (P,); expected completions


@dataclass(frozen=True, eq=False)
class Draw:
    """The prompts of one step, and the number of completions of each.

    Attributes
    ----------
    step : int
    prompt_ids : list of hashables, length K
        The prompts drawn.
    counts : ndarray of int, shape (K,)
        Number of completions of each.
    expected : ndarray, shape (K,)
        Expected completions of each under the policy.
    inclusion : ndarray, shape (K,)
        Probability that the prompt is drawn.
    correction : ndarray, shape (K,)
        Factor for the advantages of each prompt's completions.
    plan : Plan or None
        The plan for all prompts, drawn or not; None for a draw from a saved state.
    """

    step: int
    prompt_ids: list[Hashable]
    counts: np.ndarray
    expected: np.ndarray
    inclusion: np.ndarray
    correction: np.ndarray
    plan: Plan | None = None

    @property
    def n_completions(self) -> int:
        """The number of completions, which equals the budget exactly."""
        return int(self.counts.sum())

    @property
    def effective_completions(self) -> float:
        """Effective sample size of the correction, ``(sum n w)^2 / sum n w^2`` (Kish, 1965)."""
        weighted = self.counts * self.correction
        squares = float(weighted @ self.correction)
        return float(weighted.sum()) ** 2 / squares if squares > 0 else 0.0

    def rows(self) -> list[Hashable]:
        """The prompt of each completion, grouped by prompt; length B."""
        return [key for key, n in zip(self.prompt_ids, self.counts.tolist(), strict=True) for _ in range(n)]

    def correction_of(self, prompt_ids: Sequence[Hashable]) -> np.ndarray:
        """The factor of each completion's advantage, given the prompts of the completions.

        Raises
        ------
        KeyError
            If a prompt was not drawn.
        """
        factor = self._factor
        missing = [key for key in prompt_ids if key not in factor]
        if missing:
            raise KeyError(f"prompt_ids: {missing[0]!r} was not drawn at step {self.step}.")
        return np.array([factor[key] for key in prompt_ids])

    def metrics(self) -> dict[str, float]:
        """Figures for a trainer's log, named ``sampling/NAME``."""
        return {
            "sampling/prompts": float(len(self.prompt_ids)),
            "sampling/effective_completions": self.effective_completions,
            "sampling/largest_correction": float(self.correction.max(initial=0.0)),
        }

    def plain(self) -> dict[str, Any]:
        """The draw as plain data and NumPy arrays, without the plan.

        Raises
        ------
        TypeError
            If a prompt id cannot be stored.
        """
        arrays = {name: np.array(getattr(self, name)) for name in ARRAYS}
        return {"step": self.step, "prompts": encode_keys(self.prompt_ids)} | arrays

    @classmethod
    def of_plain(cls, state: Any) -> Draw:
        """The inverse of `plain`.

        Raises
        ------
        ValueError
            If the parts are inconsistent.
        """
        if not isinstance(state, dict) or set(state) != {"step", "prompts", *ARRAYS}:
            raise ValueError("state: not a draw of a PromptSampler; the state was altered.")
        prompts = decode_keys(state["prompts"])
        for name, kind in zip(ARRAYS, "ifff", strict=True):
            array = state[name]
            if not isinstance(array, np.ndarray) or array.shape != (len(prompts),) or array.dtype.kind != kind:
                raise ValueError(f"state: {name} does not fit the prompts of the draw; the state was altered.")
        return cls(stored_step(state["step"]), prompts, **{name: state[name].copy() for name in ARRAYS})

    @cached_property
    def _factor(self) -> dict[Any, float]:
        return dict(zip(self.prompt_ids, self.correction.tolist(), strict=True))


def corrections(expected: np.ndarray, uniform: np.ndarray, correction: str) -> np.ndarray:
    """``uniform / expected``: with it, a mean over the budget's completions estimates the objective's gradient.

    ``expected`` are the completions expected under the policy, ``uniform`` under the objective's own weights (B pi). A
    ``correction`` is "full", "clipped" (at most 4, for less variance and some bias), or "none", which gives 1.
    """
    if correction == "none":
        return np.ones(len(expected))
    full = uniform / expected
    return full if correction == "full" else np.minimum(full, CLIP)
