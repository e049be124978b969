"""A value for every turn: a history for each prompt and turn, for completions in a tool loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.checks import check_mask, check_share
from kaestat.core.locked import Locked
from kaestat.core.storage import load_state, save_state, unpack_arrays
from kaestat.credit.turns import check_counts, padded_turns, ragged, returns_of_padded
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.held_state import Call, Cell, Change, Commit, changes_together, make_changes
from kaestat.history.delta import HistoryDelta

_OF_THE_PROMPT = ("objective", "prior")
Ragged = Sequence[Sequence[float] | np.ndarray]
_Turns = tuple[AdvantageEstimator, ...]
_Called = tuple[np.ndarray, list[Hashable], np.ndarray, tuple[Any, ...]]


class TurnEstimator(Locked):
    """Advantages of every turn of each step's completions, with a history for each prompt and turn.

    The advantage of turn k of a completion is ``G_k - V_k``: ``G_k = sum_{j >= k} gamma^(j - k) r_j`` is its return
    from that turn on, ``V_k`` the value of turn k on this prompt, E[G_k | prompt, turn k is reached]. For each k, an
    ordinary `AdvantageEstimator` estimates it from the returns of the completions that reached turn k, now and at
    earlier steps. So a method uses data of the same turn only. The return of another
    turn holds rewards of the same completion, and would make the gradient biased.

    Whether a completion reaches turn k is settled before it writes the first token of that turn. With ``gamma=1`` the
    sum over turns of advantage times score is therefore an unbiased gradient of the expected sum of the rewards, for
    every method that leaves a completion's own reward out. With ``gamma < 1`` it is biased towards early rewards, and
    has less noise.

    With one turn per completion it equals the ordinary estimator, bit for bit.

    Parameters
    ----------
    method : str or Baseline, optional
        As for `AdvantageEstimator`. Returns of late turns are sums over fewer rewards: with outcomes of 0 and 1 alone
        they stay between 0 and 1. With rewards of every turn they do not, and methods for success rates refuse them.
    gamma : float
        Discount per turn, from 0 to 1.
    scale : str, optional
        As for `AdvantageEstimator`. A scaling over the batch is over the completions that reached the same turn.
    **params
        Parameters of the baseline, and ``order``, ``late`` and ``keep_deltas`` of `AdvantageEstimator`.

    Attributes
    ----------
    estimators : tuple of AdvantageEstimator
        One for each turn seen so far, at least for the first. The first one serves for completions as a whole
        (`AdvantageEstimator.predict`, `AdvantageEstimator.add_prior`).
    values : list of ndarray
        Values of the turns of the last `step`; 0 where masked.

    Raises
    ------
    TypeError, ValueError
        If the discount is not a number from 0 to 1, and as `AdvantageEstimator`; for an objective or a prior,
        which concern prompts.

    Examples
    --------
    Two completions of a prompt call a tool, one of them twice; one tool call earned 0.5:

    >>> turns = TurnEstimator("kae", bandwidth=10)
    >>> for advantages in turns.step(["a", "a", "a"], [[0.5, 0.0, 1.0], [0.0, 0.0], [1.0]], step=0):
    ...     print(advantages.tolist())
    [1.0, 1.0, 1.0]
    [-1.25, -1.0]
    [0.25]
    """

    def __init__(
        self, method: str | Baseline = DEFAULT_METHOD, *, gamma: float = 1.0, scale: str | None = None, **params: Any
    ):
        given = [name for name in _OF_THE_PROMPT if name in params]
        if given:
            raise ValueError(
                f"{given[0]}: applies to prompts, not to turns; leave it out (give a prior to estimators[0].add_prior)."
            )
        self.gamma = check_share("gamma", gamma, allow_zero=True)
        super().__init__()
        self._make = partial(AdvantageEstimator, method, scale=scale, **params)
        self._turns = Cell(self._longer((), 1))
        self.values: list[np.ndarray] = []

    def __repr__(self) -> str:
        return f"<TurnEstimator of {len(self.estimators)} turns, gamma={self.gamma:g}: {self.estimators[0]!r}>"

    @property
    def estimators(self) -> _Turns:
        """The estimators, one for each turn seen so far."""
        return self._turns.value

    @property
    def last_step(self) -> int:
        """The last step recorded; -1 before the first."""
        return self.estimators[0].last_step

    def step(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Ragged,
        step: int,
        *,
        mask: Sequence[bool] | np.ndarray | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Ragged | None = None,
        version: Sequence[int] | np.ndarray | None = None,
    ) -> list[np.ndarray]:
        """Advantages of all turns of one step's completions, one entry per turn and 0 where masked; records their
        returns.

        Parameters
        ----------
        prompt_ids, step, mask, stream_ids, version
            As in `AdvantageEstimator.step`, one per completion.
        rewards : sequence of sequence of float, length N
            Reward of each turn of each completion; the reward of the outcome belongs to the last turn. Completions
            without turns are left out.
        weights : sequence of sequence of float, length N, optional
            Weight of each turn: its squared score norm, or a proxy such as its number of tokens.

        Raises
        ------
        ValueError, TypeError
            As `AdvantageEstimator.step`, or if weights do not match the turns. No turn is then recorded.
        """
        call = Call()
        found = self.recorded("step", call, prompt_ids, rewards, step, mask, stream_ids, weights, version)
        return call.finish(found)

    def observe(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Ragged,
        step: int,
        *,
        mask: Sequence[bool] | np.ndarray | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Ragged | None = None,
        version: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        """Record completions that get no advantage; parameters and errors as `step`."""
        call = Call()
        self.recorded("observe", call, prompt_ids, rewards, step, mask, stream_ids, weights, version)
        call.finish(None)

    def recorded(
        self,
        name: Literal["step", "observe"],
        call: Call,
        prompt_ids: Sequence[Hashable],
        rewards: Ragged,
        step: int,
        *columns: Any,
    ) -> list[np.ndarray]:
        """`step` or `observe` as a part of a larger call; see `AdvantageEstimator.recorded`."""
        padded, counts = padded_turns("rewards", rewards)
        advantages, values = np.zeros_like(padded), np.zeros_like(padded)
        called = self._calls(prompt_ids, padded, counts, *columns)
        with self.lock:
            estimators = self._longer(self.estimators, len(called))

            def prepare() -> list[Change]:
                return [
                    estimator.prepared(name, call, ids, returns, step, *of_turn)
                    for estimator, (_, ids, returns, of_turn) in zip(estimators, called, strict=False)
                ]

            changes = changes_together(call, prepare)
            self._make_changes(estimators, changes)
            if name == "step":
                for turn, ((rows, *_), change) in enumerate(zip(called, changes, strict=True)):
                    advantages[rows, turn], values[rows, turn] = change.advantages, change.values
                self.values = ragged(values, counts)
        return ragged(advantages, counts)

    def take_delta(self) -> tuple[HistoryDelta, ...]:
        """What was recorded since the last call, by turn; as `AdvantageEstimator.take_delta`."""
        return tuple(estimator.take_delta() for estimator in self.estimators)

    def merge(self, delta: Sequence[HistoryDelta]) -> None:
        """Add the result of another worker's `take_delta`, all turns or none; as `AdvantageEstimator.merge`."""
        with self.lock:
            estimators = self._longer(self.estimators, len(delta))
            self._make_changes(estimators, [e.merged(each) for e, each in zip(estimators, delta, strict=False)])

    def state_snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that returns `state_dict` as of now."""
        with self.lock:
            gamma, plain = self.gamma, [estimator.state_snapshot() for estimator in self.estimators]
        return lambda: {"gamma": gamma, "turns": {str(turn): each() for turn, each in enumerate(plain)}}

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data, for a trainer's checkpoint."""
        return self.state_snapshot()()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`; if that fails, nothing changes.

        Raises a ValueError if it is not a state, or of another discount or method.
        """
        try:
            gamma, of_turns = float(state["gamma"]), [state["turns"][str(turn)] for turn in range(len(state["turns"]))]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"state: not a state of a TurnEstimator ({type(error).__name__}: {error}).") from error
        if not of_turns:
            raise ValueError("state: not a state of a TurnEstimator; it has no turns.")
        if gamma != self.gamma:
            raise ValueError(f"state: saved with gamma={gamma:g}, this has {self.gamma:g}; their returns differ.")
        with self.lock:
            estimators = self._longer((), len(of_turns))
            for estimator, each in zip(estimators, of_turns, strict=True):
                estimator.load_state_dict(each)
            self._turns.put(estimators)
            self.values = []

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, atomically and without pickle."""
        save_state(path, {"turns": unpack_arrays(self.state_dict())})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file written by `save`.

        Raises a FileNotFoundError if there is no such file, and a ValueError if it is damaged, or holds something else.
        """
        content = load_state(path)
        if not isinstance(content.get("turns"), dict):
            raise ValueError(f"{path}: holds no state of a TurnEstimator.")
        self.load_state_dict(content["turns"])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As `Locked`; the estimators of all turns share the lock."""
        super().__setstate__(state)
        for estimator in self.estimators:
            estimator.lock = self.lock

    def _longer(self, estimators: _Turns, turns: int) -> _Turns:
        """The estimators, and new ones for further turns."""
        new = tuple(self._make() for _ in range(len(estimators), turns))
        for estimator in new:
            estimator.lock = self.lock
        return (*estimators, *new)

    def _make_changes(self, estimators: _Turns, changes: list[Change]) -> None:
        """Change the estimators of all turns, some of which may be new, or none."""
        commit = Commit()
        self._turns.wait(estimators, commit)
        make_changes(changes, commit, stacklevel=5)

    def _calls(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: np.ndarray,
        counts: np.ndarray,
        mask: Sequence[bool] | np.ndarray | None,
        stream_ids: Sequence[Hashable] | None,
        weights: Ragged | None,
        version: Sequence[int] | np.ndarray | None,
    ) -> list[_Called]:
        """Rows, ids, returns and further columns that the estimator of each turn is called with; always of one."""
        size = len(counts)
        for name, column in (("prompt_ids", prompt_ids), ("stream_ids", stream_ids), ("version", version)):
            if column is not None and len(column) != size:
                raise ValueError(f"{name} has {len(column)} entries for {size} completions; give one each.")
        names, streams = _listed(prompt_ids), None if stream_ids is None else _listed(stream_ids)
        checked = None if mask is None else check_mask(mask, size)
        keep = np.ones(size, dtype=bool) if checked is None else checked
        returns, heavy = returns_of_padded(rewards, self.gamma), None
        if weights is not None:
            heavy, of_weights = padded_turns("weights", weights)
            check_counts("weights", of_weights, counts)
        called = []
        for turn in range(max(int(counts[keep].max(initial=0)), 1)):
            rows = np.flatnonzero(keep & (counts > turn))
            places = rows.tolist()
            columns = (
                None,
                None if streams is None else [streams[row] for row in places],
                None if heavy is None else heavy[rows, turn],
                None,
                None,
                None if version is None else np.asarray(version)[rows],
            )
            called.append((rows, [names[row] for row in places], returns[rows, turn], columns))
        return called


def _listed(ids: Sequence[Hashable]) -> Sequence[Hashable]:
    """Arrays as lists, whose numbers a state can hold."""
    return ids.tolist() if isinstance(ids, np.ndarray) else ids
