"""MoPPS: a decaying Beta posterior of each prompt, and Thompson draws nearest to one half (Qu et al., 2025)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kaestat.core.checks import check_positive, check_share
from kaestat.sampling.policies.base import Ask, Policy, nearest


@dataclass(frozen=True)
class Mopps(Policy):
    """As many prompts as the budget is enough for, those whose drawn success rates are nearest to the target.

    For rewards in [0, 1]. After each visit of s successes in n, ``a <- d a + (1 - d) a0 + s`` and ``b <- d b + (1 - d)
    b0 + n - s``; before each step a success rate is drawn from each prompt's Beta(a, b).

    Source: Model Predictive Prompt Selection (arXiv 2507.04632), and its code in verl's recipes (2d93d38). There, a
    conditional without parentheses sets a and b to 8 if a group has one completion; here the update is the
    paper's. It does not correct for its selection.

    Parameters
    ----------
    decay : float
        d, in (0, 1].
    prior : float
        a0 and b0.
    target : float
        The best success rate.
    """

    decay: float = 0.5
    prior: float = 1.0
    target: float = 0.5

    leaves_out: ClassVar[bool] = True
    of_rates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_share("decay", self.decay)
        check_positive("prior", self.prior)
        check_share("target", self.target, allow_zero=True)

    def initial_state(self, n_prompts: int) -> dict[str, np.ndarray]:
        """Parameters a and b of each prompt."""
        return {"successes": np.full(n_prompts, self.prior), "failures": np.full(n_prompts, self.prior)}

    def observed(
        self, state: dict[str, np.ndarray], rows: np.ndarray, count: np.ndarray, total: np.ndarray, total_sq: np.ndarray
    ) -> dict[str, np.ndarray]:
        successes, failures = state["successes"].copy(), state["failures"].copy()
        fading = (1 - self.decay) * self.prior
        successes[rows] = self.decay * successes[rows] + fading + np.clip(total, 0.0, count)
        failures[rows] = self.decay * failures[rows] + fading + np.clip(count - total, 0.0, count)
        return {"successes": successes, "failures": failures}

    def score(self, ask: Ask) -> np.ndarray:
        drawn = ask.rng.beta(ask.state["successes"], ask.state["failures"])
        return nearest(np.abs(drawn - self.target), ask.n_selected, ask.rng)
