"""A value for every turn of a completion: a history for each prompt and turn, for agents that call tools."""

import os
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.checks import check_share, check_whole
from kaestat.core.storage import load_state, reading, save_state, unpack_arrays
from kaestat.estimator.several_rewards import SeveralRewards

_NOT_FOR_TURNS = ("scale", "objective", "order", "late", "keep_deltas", "prior")


class TurnEstimator:
    """Advantages of every turn of each step's completions.

    The advantage of turn k of a completion is ``G_k - V_k``: ``G_k = sum_{j >= k} gamma^(j - k) r_j`` is its return
    from that turn on, ``V_k`` estimates E[G_k | prompt, turn k is reached]. Each turn has its own `AdvantageEstimator`,
    so a value never depends on another turn of the same completion, whose return holds the same rewards.

    Whether a completion reaches turn k is settled before the first token of that turn. With ``gamma=1`` and a method
    that leaves a completion's own reward out, the sum over turns of advantage times score is therefore an unbiased
    gradient of the expected sum of the rewards. With ``gamma < 1`` it is biased towards early rewards, with less noise.

    Parameters
    ----------
    method : str, optional
        As for `AdvantageEstimator`, without its scaling. Methods for success rates refuse returns above 1.
    turns : int
        The largest number of turns of a completion.
    gamma : float
        Discount per turn, from 0 to 1.
    **params
        Parameters of the baseline.

    Attributes
    ----------
    values : list of ndarray
        Values of the turns of the last `step`.

    Raises
    ------
    TypeError, ValueError
        If the number of turns or the discount is out of range, for an option of `AdvantageEstimator` that is not for
        turns, and as `AdvantageEstimator`.

    Examples
    --------
    Two completions of a prompt call a tool, one of them twice; one tool call earned 0.5:

    >>> turns = TurnEstimator("kae", turns=3, bandwidth=10)
    >>> for advantages in turns.step(["a", "a", "a"], [[0.5, 0.0, 1.0], [0.0, 0.0], [1.0]], step=0):
    ...     print(advantages.tolist())
    [1.0, 1.0, 1.0]
    [-1.25, -1.0]
    [0.25]
    """

    def __init__(self, method: str = DEFAULT_METHOD, *, turns: int, gamma: float = 1.0, **params: Any):
        if wrong := [name for name in _NOT_FOR_TURNS if name in params]:
            raise ValueError(f"{wrong[0]}={params[wrong[0]]!r}: is not for turns; leave it out.")
        check_whole("turns", turns, least=1)
        self.gamma = check_share("gamma", gamma, allow_zero=True)
        names = [f"turn {turn}" for turn in range(turns)]
        self._of_turns = SeveralRewards.of(method, names, normalize=False, scale="none", **params)
        self.values: list[np.ndarray] = []

    def step(self, prompt_ids: Sequence[Hashable], rewards: Sequence[Sequence[float]], step: int) -> list[np.ndarray]:
        """Advantages of all turns of one step's completions, an array for each completion; records their returns.

        Parameters
        ----------
        prompt_ids, step
            As in `AdvantageEstimator.step`, one per completion.
        rewards : sequence of sequence of float, length N
            Reward of each turn of each completion; the reward of the outcome belongs to the last turn.

        Raises
        ------
        ValueError, TypeError
            As `AdvantageEstimator.step`, or if a completion has too many turns. No turn is then recorded.
        """
        returns = np.full((len(rewards), len(self._of_turns.estimators)), np.nan)  # NaN: a turn that was not reached
        for place, row in enumerate(rewards):
            if len(row) > returns.shape[1]:
                raise ValueError(
                    f"rewards: completion {place} has {len(row)} turns; make the estimator with turns={len(row)} or "
                    f"more, not {returns.shape[1]}."
                )
            total = 0.0
            for turn in reversed(range(len(row))):
                total = returns[place, turn] = float(row[turn]) + self.gamma * total
            if not np.isfinite(returns[place, : len(row)]).all():
                raise ValueError(f"rewards: those of completion {place} are not finite, or their sum is not.")
        self._of_turns.step(prompt_ids, returns, step)
        values: Any = self._of_turns.values
        self.values = [found[: len(row)] for found, row in zip(values, rewards, strict=True)]
        return [found[: len(row)] for found, row in zip(returns - values, rewards, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data, for a trainer's checkpoint."""
        return {"gamma": self.gamma, "turns": self._of_turns.state_dict()}

    @reading()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`; a ValueError if it is of another discount, method or number."""
        if state.get("gamma") != self.gamma:
            raise ValueError(f"state: saved with gamma={state.get('gamma')}, not {self.gamma}; their returns differ.")
        self._of_turns.load_state_dict(state["turns"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, atomically and without pickle."""
        save_state(path, unpack_arrays(self.state_dict()))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file written by `save`; errors as `load_state_dict`."""
        self.load_state_dict(load_state(path))
