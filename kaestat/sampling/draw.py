"""The prompts sampled at one step, and the corrections for them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kaestat.core.storage import decode_keys, encode_keys
from kaestat.estimator.prediction import Prediction
from kaestat.history.fields import stored_step

ARRAYS = {"counts": "i", "expected": "f", "correction": "f"}  # with the kind of their numbers
CORRECTIONS = ("full", "clipped", "none")
CLIP = 4.0  # of "clipped": with the default floor, corrections of up to 10 occur


@dataclass(frozen=True, eq=False)
class Plan:
    """The expected completions of every prompt under a policy, before the draw."""

    prediction: Prediction  # for every prompt that can be drawn, shape (P,), with rewards mapped to [0, 1]
    share: np.ndarray  # shape (P,); weights pi of the prompts in the objective; they sum to 1
    expected: np.ndarray  # shape (P,); expected completions


@dataclass(frozen=True, eq=False)
class Draw:
    """The prompts of one step, and the number of completions of each."""

    step: int
    prompt_ids: list[Hashable]  # length K; the prompts drawn
    counts: np.ndarray  # of int, shape (K,); number of completions of each
    expected: np.ndarray  # shape (K,); expected completions of each under the policy
    correction: np.ndarray  # shape (K,); factor for the advantages of each prompt's completions
    plan: Plan | None = None  # for all prompts, drawn or not; None for a draw from a saved state

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

        Raises a KeyError if a prompt was not drawn.
        """
        factor = dict(zip(self.prompt_ids, self.correction.tolist(), strict=True))
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
        """The draw as plain data and NumPy arrays, without the plan; a TypeError if an id cannot be stored."""
        arrays = {name: getattr(self, name).copy() for name in ARRAYS}
        return {"step": self.step, "prompts": encode_keys(self.prompt_ids)} | arrays

    @classmethod
    def of_plain(cls, state: dict[str, Any]) -> Draw:
        """The inverse of `plain`; a ValueError or KeyError if the parts are inconsistent."""
        prompts, arrays = decode_keys(state["prompts"]), {name: state[name] for name in ARRAYS}
        for name, array in arrays.items():
            if array.shape != (len(prompts),) or array.dtype.kind != ARRAYS[name]:
                raise ValueError(f"{name} does not fit the prompts of the draw")
        return cls(stored_step(state["step"]), prompts, **arrays)


def corrections(expected: np.ndarray, uniform: np.ndarray, correction: str) -> np.ndarray:
    """``uniform / expected``: with it, a mean over the budget's completions estimates the objective's gradient.

    ``expected`` are the completions expected under the policy, ``uniform`` under the objective's own weights (B pi). A
    ``correction`` is "full", "clipped" (at most 4, for less variance and some bias), or "none", which gives 1.
    """
    if correction == "none":
        return np.ones(len(expected))
    return np.minimum(uniform / expected, CLIP if correction == "clipped" else np.inf)
