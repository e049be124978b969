"""An `AdvantageEstimator` as trainers need it: ids watched, copies of a prompt told apart, states by step, metrics.

Every adapter, and every recipe, is a thin translation of what its trainer knows into `TrackedEstimator.advantages`.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from kaestat.core.checks import check_whole
from kaestat.core.storage import load_state, save_state, unpack_arrays
from kaestat.credit.turn_estimator import TurnEstimator
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.held_state import Call
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.history.delta import HistoryDelta
from kaestat.integrations.shared.held_states import HeldStates
from kaestat.integrations.shared.metrics import step_metrics
from kaestat.integrations.shared.prompt_ids import IdentityCheck
from kaestat.integrations.shared.tracked_rows import TrackedRows, check_step, looks_back, tracked_rows


class TrackedEstimator:
    """Advantages of one step's completions, with every way to train on a wrong history refused.

    Another thread than the one that trains may ask for states (`state_dict`, `save`, `save_estimator`): all calls take
    the estimator's own lock.

    Parameters
    ----------
    estimator : AdvantageEstimator
        Does all the mathematics and holds the history.
    states_kept : int
        After how many of the last steps the state is held for `state_dict`. Asynchronous trainers have rewards of later
        steps already when they save: take one more than the number of steps that they may be ahead. 0 holds none.

    Attributes
    ----------
    metrics : dict of str to float
        Of the last step: the figures of `step_metrics`, each as ``baseline/NAME``.

    Examples
    --------
    >>> watched = TrackedEstimator(AdvantageEstimator("kae", bandwidth=10))
    >>> watched.advantages([1.0, 0.0], 0, prompts=["2+2=", "2+2="]).tolist()
    [1.0, -1.0]
    >>> watched.advantages([1.0, 0.0], 1, prompts=["2+2=", "2+2="]).round(3).tolist()
    [0.679, -0.679]
    >>> watched.metrics["baseline/known_prompts"]
    1.0
    """

    _kind: ClassVar[type] = AdvantageEstimator
    _keys: ClassVar[tuple[str, ...]] = ("watched", "state")  # of the state in files of `save` and `save_estimator`
    _unused: ClassVar[tuple[None, ...]] = (None, None)  # columns of the estimator that no trainer has

    def __init__(self, estimator: Any, *, states_kept: int = 0):
        if not isinstance(estimator, self._kind):
            raise TypeError(
                f"estimator must be a kaestat {self._kind.__name__}, got {type(estimator).__name__}; for example "
                f'{self._kind.__name__}("kae").'
            )
        check_whole("states_kept", states_kept, least=0)
        self.estimator: Any = estimator
        self.metrics: dict[str, float] = {}
        self._watch = IdentityCheck()
        self._states = HeldStates(states_kept)

    @property
    def any_order(self) -> bool:
        """Whether completions are recorded under the policy that sampled them, whenever they come."""
        return all(each.order == "any" for each in self.parts().values())

    @property
    def stateful(self) -> bool:
        """Whether values depend on earlier steps."""
        return any(looks_back(each.baseline) for each in self.parts().values())

    def advantages(
        self,
        rewards: Any,
        step: int | None,
        *,
        prompts: Sequence[Any],
        ids: Sequence[Hashable] | None = None,
        groups: Sequence[Hashable] | None = None,
        mask: Sequence[bool] | np.ndarray | None = None,
        weights: Any = None,
        version: Sequence[int] | np.ndarray | None = None,
    ) -> Any:
        """Advantages of one step's completions, all of them in one call; records their rewards.

        Parameters
        ----------
        rewards : sequence of float, shape (N,)
            With several rewards a row of them for each completion, with turns a list of them.
        step : int or None
            Training step; None if the trainer does not tell, which only methods without a history can do with.
        prompts : sequence, length N
            Each completion's prompt, as `hash_prompt` takes it.
        ids : sequence of hashables, length N, optional
            What the history is kept by; they are checked against the prompts. None takes the prompts' hashes.
        groups : sequence of hashables, length N, optional
            The trainer's own name of each completion's group; it may change from step to step. Only tells several
            groups of one prompt at one step apart: its k-th group, in the order of the rows, is its stream k.
        mask : sequence of bool, shape (N,), optional
            False for rows that are no completions (padding): advantage 0, and nothing of them is recorded.
        weights : sequence of float, shape (N,), optional
            See `AdvantageEstimator.step`; with turns a list for each completion.
        version : sequence of int, shape (N,), optional
            Step of the policy that sampled each completion, for an estimator with ``order="any"``; with one, a step may
            come in several calls, and after later ones.

        Returns
        -------
        ndarray of float64, shape (N,), or with turns a list of such arrays

        Raises
        ------
        UnstablePromptIds
            If a prompt or an id is missing, an id names two prompts, or ids change from visit to visit.
        ValueError
            If a method with a history is given no step, and as `AdvantageEstimator.step` does.
        TypeError
            If an id is no string, number, bytes or tuple of these, which a checkpoint can hold.
        """
        rows = self.rows(len(rewards), step, prompts, ids, groups, mask)
        return self.of_rows("step", rewards, rows, weights, version)

    def observe(self, rewards: Any, step: int | None, *, prompts: Sequence[Any], **columns: Any) -> None:
        """Record scored completions that get no advantage: those of groups that a trainer's filter drops.

        Without them a history holds what the filter lets through, groups of mixed outcomes, and its values are pulled
        towards 1/2. `metrics` stay those of the last `advantages`.

        Parameters
        ----------
        rewards, step, prompts, **columns
            As in `advantages`. A prompt comes in one call of a step, of either kind; with ``order="any"`` only each
            completion does.

        Raises
        ------
        UnstablePromptIds, ValueError, TypeError
            As `advantages`.
        """
        named = {name: columns.pop(name, None) for name in ("ids", "groups", "mask")}
        self.of_rows("observe", rewards, self.rows(len(rewards), step, prompts, **named), **columns)

    def rows(
        self,
        size: int,
        step: int | None,
        prompts: Sequence[Any],
        ids: Sequence[Hashable] | None = None,
        groups: Sequence[Hashable] | None = None,
        mask: Sequence[bool] | np.ndarray | None = None,
    ) -> TrackedRows:
        """The rows of a call, checked, for `of_rows`; parameters and errors as `advantages`."""
        for each in self.parts().values():
            check_step(step, each)
        return tracked_rows(self._watch, size, step, prompts, ids, groups, mask)

    def of_rows(
        self,
        name: Literal["step", "observe"],
        rewards: Any,
        rows: TrackedRows,
        weights: Any = None,
        version: Any = None,
    ) -> Any:
        """`advantages` or `observe` of rows that have been checked."""
        call, reward = Call(), self._column(rewards)
        with self.estimator.lock:
            columns = rows.keep, rows.streams, weights, *self._unused, version
            advantages = self.estimator.recorded(name, call, rows.ids, reward, rows.step, *columns)
            self._keep_state()
        if name == "step":
            self.metrics = {
                f"baseline/{part}{figure}": value
                for part, each in self._reached(advantages, rows.keep).items()
                for figure, value in step_metrics(each.record).items()
            }
        return call.finish(advantages if name == "step" else None)

    def merge(self, delta: HistoryDelta) -> None:
        """Add what came in elsewhere; as `AdvantageEstimator.merge`."""
        with self.estimator.lock:
            self.estimator.merge(delta)
            self._keep_state()

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """The estimator's state as plain data (bytes, numbers, text), as of after ``step``.

        Beside a step that another thread computes, a state that is held comes at once; otherwise the call waits until
        the step is over.

        Parameters
        ----------
        step : int, optional
            The last step that belongs to the checkpoint. Asynchronous trainers have rewards of later steps already
            when they save, and see those steps again after a resume. None takes everything up to now.

        Raises
        ------
        ValueError
            If the state after that step is held no more.
        """
        state = None if step is None else self._states.of(step)
        if state is None:
            with self.estimator.lock:
                last = self.estimator.last_step
                if step is None or not self.stateful or last <= step:
                    state = self.estimator.state_snapshot()
                else:
                    state = self._states.after(step, last)
        return state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of `state_dict`."""
        with self.estimator.lock:
            self.estimator.load_state_dict(state)
            self._watch, self.metrics = IdentityCheck(), {}
            self._states.clear()
            self._keep_state()

    def save(self, path: str | os.PathLike[str], step: int | None = None) -> None:
        """Write the state to a file, atomically and without pickle; ``step`` as in `state_dict`."""
        save_state(path, {self._keys[0]: unpack_arrays(self.state_dict(step))})

    def save_estimator(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator to a file for `AdvantageEstimator.load`, with its state in ``"state"``.

        The state alone, where it has a kernel or a baseline of the user's own, which no file can hold.
        """
        with self.estimator.lock:
            try:
                self.estimator.save(path)
            except TypeError:
                save_state(path, {"state": unpack_arrays(self.estimator.state_dict())})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file of `save` or `save_estimator`.

        Raises
        ------
        FileNotFoundError
            If there is none.
        ValueError
            If it is torn, or of another method.
        """
        content = load_state(path)
        states = [content[key] for key in self._keys if isinstance(content.get(key), dict)]
        if not states:
            raise ValueError(f"{path}: holds no state of {self._kind.__name__}, as a trainer saves it.")
        self.load_state_dict(states[0])

    def _column(self, rewards: Any) -> Any:
        return np.asarray(rewards, dtype=np.float64)

    def parts(self) -> dict[str, AdvantageEstimator]:
        """The estimators of single rewards, by what stands before the names of their metrics."""
        return {"": self.estimator}

    def _reached(self, advantages: Any, keep: np.ndarray) -> dict[str, AdvantageEstimator]:
        """Those of `parts` that the last step came to."""
        return self.parts()

    def _keep_state(self) -> None:
        if self.stateful:  # a call that comes late is in no state of the steps before the newest
            self._states.put(self.estimator.last_step, self.estimator.state_snapshot())


class TrackedRewards(TrackedEstimator):
    """A `TrackedEstimator` of `SeveralRewards`; its metrics are each as ``baseline/REWARD/NAME``."""

    _kind: ClassVar[type] = SeveralRewards

    def parts(self) -> dict[str, AdvantageEstimator]:
        return {f"{name}/": each for name, each in self.estimator.estimators.items()}


class TrackedTurns(TrackedEstimator):
    """A `TrackedEstimator` of a `TurnEstimator`, for lists of rewards, one per turn of a completion.

    Its metrics are those of the first turn, which are those of whole completions, as ``baseline/NAME``, and those of
    every further turn k that the last step came to as ``baseline/turn_k/NAME`` (0-based).

    Examples
    --------
    >>> watched = TrackedTurns(TurnEstimator("kae", bandwidth=10))
    >>> [each.tolist() for each in watched.advantages([[0.0, 1.0], [0.0]], 0, prompts=["2+2=", "2+2="])]
    [[1.0, 1.0], [-1.0]]
    """

    _kind: ClassVar[type] = TurnEstimator
    _keys: ClassVar[tuple[str, ...]] = ("turns",)  # as `TurnEstimator.save`
    _unused: ClassVar[tuple[None, ...]] = ()

    def _column(self, rewards: Any) -> Any:
        return rewards

    def parts(self) -> dict[str, AdvantageEstimator]:
        return {f"turn_{turn}/" if turn else "": each for turn, each in enumerate(self.estimator.estimators)}

    def _reached(self, advantages: Any, keep: np.ndarray) -> dict[str, AdvantageEstimator]:
        turns = max((len(each) for each, kept in zip(advantages, keep, strict=True) if kept), default=0)
        return dict(list(self.parts().items())[: max(turns, 1)])


def tracked(estimator: AdvantageEstimator | SeveralRewards | TurnEstimator, states_kept: int = 0) -> TrackedEstimator:
    """An estimator, of whichever kind, as a trainer needs it.

    Raises
    ------
    TypeError
        If it is none.
    """
    for kind in (TrackedRewards, TrackedTurns):
        if isinstance(estimator, kind._kind):
            return kind(estimator, states_kept=states_kept)
    return TrackedEstimator(estimator, states_kept=states_kept)
