"""ReMax: the reward of the prompt's greedy completion, which the user gives (Li et al., 2023)."""

from dataclasses import dataclass
from typing import ClassVar

from kaestat.baselines.given_values import Given, GivenBaseline


@dataclass(frozen=True, eq=False)
class Remax(GivenBaseline):
    """Reward of the current policy's greedy completion.

    Parameters
    ----------
    greedy : mapping, callable or array
        ``{prompt_id: reward}``, looked up at every step, so the caller must add the step's rewards first; or
        ``greedy(prompt_ids, step) -> sequence of P rewards``, which may generate them; or an array broadcastable to
        (..., P), for direct use on arrays.

    Raises
    ------
    ValueError
        If no rewards are given, or a prompt's is missing or not finite.
    """

    greedy: Given | None = None

    argument: ClassVar[str] = "greedy"
